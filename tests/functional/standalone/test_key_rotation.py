"""Keys are replaced under load: nothing answers 401 or 5xx, and nothing that was sealed is lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from click.testing import CliRunner
from cryptography.fernet import Fernet, InvalidToken

from skep.cli.main import skep
from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import ComputeSession, http_config, serving_cloud, signed_in
from skep.database.api import cells as cell_rows
from skep.database.opening import bare_engine
from skep.processes import addresses
from skep.processes.all_in_one import AllInOneCloud
from skep.processes.directory import StateDirectory
from skep.standalone.key_ring import keys_in

CREATE = {"name": "one", "flavorRef": "1", "networks": "none", "adminPass": "correct horse"}


@pytest.fixture
async def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AllInOneCloud]:
    monkeypatch.setenv("SKEP_STATE__DIRECTORY", str(tmp_path / "state"))
    async with serving_cloud(http_config(tmp_path), cells=1, hosts=2) as running:
        yield running


async def keys(*arguments: str, status: int = 0) -> Any:
    run = partial(CliRunner().invoke, skep, ["keys", *arguments, "--json"], prog_name="skep")
    done = await asyncio.to_thread(run)
    assert done.exit_code == status, done.output
    return done.stderr if status else json.loads(done.stdout)


@asynccontextmanager
async def load(cloud: AllInOneCloud, session: ComputeSession, image: str) -> AsyncIterator[list[int]]:
    """Sign in, read, create and repeat creates all the time; yield the statuses of all answers."""
    statuses: list[int] = []
    ended = asyncio.Event()

    async def reads() -> None:
        while not ended.is_set():
            statuses.append((await session.ask("GET", "/servers")).status_code)

    async def creates() -> None:
        number = 0
        while not ended.is_set():
            number += 1
            body = {"server": {**CREATE, "imageRef": image, "name": f"s{number}"}}
            header = {"Idempotency-Key": f"key-{number}"}
            answers = [await session.ask("POST", "/servers", body, version="2.37", **header) for _ in range(2)]
            statuses.extend(answer.status_code for answer in answers)
            assert answers[0].content == answers[1].content
            server = answers[0].json()["server"]["id"]
            statuses.append((await session.ask("DELETE", f"/servers/{server}")).status_code)

    async def signs_in() -> None:
        while not ended.is_set():
            async with signed_in(cloud) as fresh:
                statuses.append((await fresh.ask("GET", "/flavors")).status_code)

    tasks = [asyncio.create_task(one()) for one in (reads, creates, signs_in)]
    try:
        yield statuses
        seen = len(statuses)

        async def went_on() -> bool:
            return len(statuses) > seen + 5 or any(task.done() for task in tasks)

        await eventually(went_on, "the load goes on")
    finally:
        ended.set()
        await asyncio.gather(*tasks)


async def image_of(cloud: AllInOneCloud, session: ComputeSession) -> str:
    async with httpx.AsyncClient(headers={"X-Auth-Token": session.token}) as client:
        found = (await client.get(f"{cloud.images_url}/v2/images")).json()["images"]
    return str(found[0]["id"])


async def test_keys_of_tokens(cloud: AllInOneCloud) -> None:
    async with signed_in(cloud) as session, load(cloud, session, await image_of(cloud, session)) as statuses:
        assert (await keys("rotate", "tokens"))["steps"] == ["add"]
        assert (await keys("rotate", "tokens"))["steps"] == ["use"]
        refused = await keys("rotate", "tokens", "--check", status=1)
        assert "what the old keys encrypted is good for another" in refused
        assert "not yet" in await keys("rotate", "tokens", status=1)
        async with signed_in(cloud) as fresh:
            statuses.append((await fresh.ask("GET", "/servers")).status_code)
    assert {*statuses} <= {200, 202, 204}
    listed = {one["secret"]: one for one in await keys("list")}
    assert (listed["tokens"]["next"], len(listed["tokens"]["keys"])) == ("drop", 2)


async def test_tokens_of_a_key_that_is_dropped_end(cloud: AllInOneCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKEP_IDENTITY__TOKEN_EXPIRATION", "1")
    async with signed_in(cloud) as before:
        await keys("rotate", "tokens", "--one-machine")
        await eventually(partial(may_drop, "tokens"), "the shortest life of a token that can be configured is over")
        assert (await keys("rotate", "tokens"))["steps"] == ["drop"]
        async with signed_in(cloud) as after:
            assert (await after.ask("GET", "/servers")).status_code == 200
        ring = StateDirectory(Path(cloud.config.state.directory)).token_keys
        padded = before.token + "=" * (-len(before.token) % 4)
        with pytest.raises(InvalidToken):
            Fernet(keys_in(ring)[0]).decrypt(padded)


async def may_drop(secret: str) -> bool:
    run = partial(CliRunner().invoke, skep, ["keys", "rotate", secret, "--check"])
    return (await asyncio.to_thread(run)).exit_code == 0


async def test_the_old_keys_go_under_load(cloud: AllInOneCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has signed in, or sent something to be kept, since the new keys are used notices nothing."""
    monkeypatch.setenv("SKEP_IDENTITY__TOKEN_EXPIRATION", "1")
    directory = StateDirectory(Path(cloud.config.state.directory))
    for secret in ("tokens", "sealing"):
        assert (await keys("rotate", secret, "--one-machine"))["steps"] == ["add", "use"]
    async with signed_in(cloud) as session, load(cloud, session, await image_of(cloud, session)) as statuses:
        for secret in ("tokens", "sealing"):
            await eventually(partial(may_drop, secret), "nothing needs the old key")
            assert (await keys("rotate", secret))["steps"] == ["drop"]
    assert {*statuses} <= {200, 202, 204}
    assert len(keys_in(directory.token_keys)) == len(keys_in(directory.secrets_key)) == 1


async def test_the_sealing_key(cloud: AllInOneCloud) -> None:
    directory = StateDirectory(Path(cloud.config.state.directory))
    async with signed_in(cloud) as session:
        image = await image_of(cloud, session)
        body = {"server": {**CREATE, "imageRef": image}}
        asking = partial(session.ask, "POST", "/servers", body, version="2.37", **{"Idempotency-Key": "kept"})
        first = await asking()
        assert first.status_code == 202, first.text
        async with load(cloud, session, image) as statuses:
            assert (await keys("rotate", "sealing"))["steps"] == ["add"]
            assert (await keys("rotate", "sealing"))["steps"] == ["use"]
            again = await asking()
            assert (again.status_code, again.content) == (202, first.content)
            refused = await keys("rotate", "sealing", "--check", status=1)
            assert "old keys are still needed by" in refused
            assert "kept answers" in refused
        assert {*statuses} <= {200, 202, 204}
        assert len(keys_in(directory.secrets_key)) == 2
        assert (await keys("rotate", "sealing", "--although-needed"))["steps"] == ["drop"]
        assert (await asking()).status_code == 409


def test_addresses_are_sealed_anew_before_the_old_key_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKEP_STATE__DIRECTORY", str(tmp_path / "state"))
    assert CliRunner().invoke(skep, ["db", "upgrade"]).exit_code == 0
    directory = StateDirectory(tmp_path / "state")
    url = "nats://skep:secret@127.0.0.1:9"
    engine = bare_engine(directory.databases / "api.db")
    with engine.begin() as connection:
        cell = cell_rows.every(connection)[0]
        cell_rows.move(connection, cell.uuid, addresses.to_store(directory, "", url))
    assert CliRunner().invoke(skep, ["db", "backup", str(tmp_path / "backup")]).exit_code == 0
    for words in (["--one-machine"], ["--check"], []):
        done = CliRunner().invoke(skep, ["keys", "rotate", "sealing", *words])
        assert done.exit_code == 0, done.output
    assert len(keys_in(directory.secrets_key)) == 1

    def found() -> str:
        with engine.begin() as connection:
            return addresses.transport_url(directory, dict(by_uuid(connection))[cell.uuid])

    def by_uuid(connection: sa.Connection) -> list[tuple[str, cell_rows.Addresses]]:
        return [(one.uuid, where) for one, where in cell_rows.located(connection)]

    assert found() == url
    done = CliRunner().invoke(skep, ["db", "restore", str(tmp_path / "backup"), "--yes"])
    assert done.exit_code == 0, done.output
    assert found() == url  # what the backup holds is sealed by the key that was dropped
    engine.dispose()
