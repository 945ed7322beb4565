"""The password of a database is replaced while it is used: a second role signs in and acts as the owner."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from skep.contracts.eventually import eventually
from skep.database.engine import Database
from skep.processes.directory import write_private
from skep.processes.servers.postgres import PostgresServer
from skep.processes.sessions_of_databases import sessions
from tests.support.things import add, metadata, names

OWNER, SECOND = "skep_rotated", "skep_rotated_2"


@pytest.mark.needs_part("postgres")
async def test_two_roles_overlap_and_the_old_one_goes(postgres: PostgresServer) -> None:
    postgres.give_database(OWNER, "old")
    before = postgres.url_of(OWNER, "old", OWNER)
    after = postgres.url_of(SECOND, "new", OWNER)
    old = Database(before)
    await asyncio.to_thread(metadata.create_all, old.engine)
    ended = asyncio.Event()
    written: list[str] = []

    async def writes(database: Database, by: str) -> None:
        while not ended.is_set():
            name = f"{by}-{len(written)}"
            await database.write(partial(_add, name=name))
            written.append(name)

    working = asyncio.create_task(writes(old, "old"))
    # As `skep keys steps database` says.
    with postgres.connect() as connection:
        connection.execute(f"CREATE ROLE {SECOND} LOGIN PASSWORD 'new' IN ROLE {OWNER}")
        connection.execute(f"ALTER ROLE {SECOND} SET role = '{OWNER}'")
    fresh = Database(after)
    more = asyncio.create_task(writes(fresh, "new"))
    made = sa.Table("made_later", sa.MetaData(), sa.Column("name", sa.Text))
    await asyncio.to_thread(made.create, fresh.engine)
    assert {row["role"] for row in await _sessions(after)} == {OWNER, SECOND}
    ended.set()
    await asyncio.gather(working, more)
    await old.close()
    assert {row["role"] for row in await _sessions(after)} == {SECOND}
    with postgres.connect() as connection:
        connection.execute(f"ALTER ROLE {OWNER} NOLOGIN")
    assert {*written} <= {*await fresh.read(names)}
    await fresh.write(lambda c: c.execute(add("afterwards")))
    with postgres.connect(OWNER) as connection:
        query = "SELECT tableowner FROM pg_tables WHERE tablename = 'made_later'"
        assert connection.execute(query).fetchall() == [(OWNER,)]
    await fresh.close()
    _, away = await asyncio.to_thread(sessions, {"api": before})
    assert "is not permitted to log in" in away[0]
    assert "old" not in away[0]


@pytest.mark.needs_part("postgres")
async def test_no_sign_in_fails_while_a_password_in_a_file_is_replaced(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    role, file = "skep_filed", tmp_path / "passfile"
    postgres.give_database(role, "first")
    superuser = postgres.password

    def wrote(password: str) -> None:
        write_private(file, f"*:*:*:{role}:{password}\n".encode())

    wrote("first")
    url = sa.make_url(postgres.url_of(role, "", role)).update_query_dict({"passfile": str(file)})
    plain = sa.URL.create(url.drivername, role, host=url.host, port=url.port, database=role, query=url.query)
    location = plain.render_as_string()
    ended = asyncio.Event()
    done: list[str] = []

    async def signs_in() -> None:
        while not ended.is_set():
            database = Database(location, name=role)
            done.append(await database.read(lambda c: str(c.exec_driver_sql("SELECT current_user").scalar())))
            await database.close()

    working = [asyncio.create_task(signs_in()) for _ in range(4)]
    for number in range(5):
        await asyncio.to_thread(postgres.set_passwords, superuser, {role: str(number)}, lambda _: wrote(str(number)))  # noqa: B023
        count = len(done)

        async def more(count: int = count) -> bool:
            return len(done) > count + 4

        await eventually(more, "sign-ins go on")
    ended.set()
    await asyncio.gather(*working)
    assert {*done} == {role}
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(postgres.url_of(role, "first", role).replace("+psycopg", ""))


def _add(connection: sa.Connection, name: str) -> None:
    connection.execute(add(name))


async def _sessions(url: str) -> list[dict[str, object]]:
    found, away = await asyncio.to_thread(sessions, {"api": url, "cell0": "sqlite:///none"})
    assert away == []
    return found
