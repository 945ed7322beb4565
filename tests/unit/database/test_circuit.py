"""A database that hangs costs those with no time to lose one wait; it is probed, cut off, and used again by itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from skep.contracts.eventually import eventually
from skep.database.circuit import Circuit
from skep.database.engine import Database
from skep.domain.errors import StorageUnavailable
from tests.support.things import add, answering, metadata, names


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = Database(tmp_path / "test.db", busy_timeout=0.1)
    metadata.create_all(opened.engine)
    yield opened
    await opened.close()


class Gate:
    """Asked through a circuit: answers while it is open, else hangs until it is opened."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.opened.set()
        self.asked = 0
        self.cut = 0
        self.circuit = Circuit("gate", self.ask, patience=0.05, cut_off=self.cut_off)

    async def ask(self) -> str:
        self.asked += 1
        await self.opened.wait()
        return "answer"

    def cut_off(self) -> None:
        self.cut += 1


async def test_after_one_silence_nobody_waits_until_a_probe_is_answered() -> None:
    gate = Gate()
    assert await gate.circuit.through(gate.ask, 1.0) == "answer"
    assert gate.circuit.answers
    gate.opened.clear()
    with pytest.raises(StorageUnavailable, match="did not answer in"):
        await gate.circuit.through(gate.ask, 0.01)
    assert not gate.circuit.answers

    async def never_asked() -> str:
        raise AssertionError("nobody is let through")

    with pytest.raises(StorageUnavailable, match="does not answer"):
        await gate.circuit.through(never_asked, 3600.0)

    async def cut() -> bool:
        return gate.cut >= 1

    await eventually(cut, "what hangs is cut off")
    gate.opened.set()
    await answering(gate.circuit)
    assert await gate.circuit.through(gate.ask, 1.0) == "answer"
    await gate.circuit.close()


async def test_who_comes_just_after_a_late_answer_waits_for_the_probe() -> None:
    gate = Gate()
    gate.opened.clear()
    with pytest.raises(StorageUnavailable, match="did not answer in"):
        await gate.circuit.through(gate.ask, 0.01)
    waiting = asyncio.create_task(gate.circuit.through(gate.ask, 30.0))
    await asyncio.sleep(0)
    assert gate.circuit.is_open
    gate.opened.set()
    assert await waiting == "answer"
    await gate.circuit.close()


async def test_a_timeout_of_what_was_asked_is_its_own_and_no_silence() -> None:
    gate = Gate()

    async def give_up() -> str:
        raise TimeoutError("of the unit")

    with pytest.raises(TimeoutError, match="of the unit"):
        await gate.circuit.through(give_up, 60.0)
    assert gate.circuit.answers


async def test_a_failure_is_known_and_the_next_is_let_through() -> None:
    gate = Gate()

    async def fail() -> str:
        raise StorageUnavailable("refused")

    with pytest.raises(StorageUnavailable, match="refused"):
        await gate.circuit.through(fail, 1.0)
    assert not gate.circuit.answers
    assert not gate.circuit.is_open
    assert await gate.circuit.through(gate.ask, 1.0) == "answer"
    await answering(gate.circuit)


async def test_what_hangs_is_cut_off_where_a_probe_fails_before_it_is_late() -> None:
    gate = Gate()

    async def refuse() -> None:
        raise StorageUnavailable("no connection")

    refused = Circuit("refused", refuse, patience=3600.0, cut_off=gate.cut_off)
    gate.opened.clear()
    with pytest.raises(StorageUnavailable, match="did not answer in"):
        await refused.through(gate.ask, 0.01)

    async def cut() -> bool:
        return gate.cut >= 2

    await eventually(cut, "each probe that fails has what hangs cut off")
    await refused.close()


async def test_a_doubt_refuses_nobody_and_ends_with_an_answer_or_begins_to_probe() -> None:
    gate = Gate()
    gate.circuit.doubt()
    gate.circuit.doubt()

    async def asked() -> bool:
        return gate.asked == 1

    await eventually(asked, "it is probed, once at a time")
    assert gate.circuit.answers
    gate.opened.clear()
    gate.circuit.doubt()
    assert gate.circuit.answers

    async def silent() -> bool:
        return not gate.circuit.answers

    await eventually(silent, "a probe had no answer")
    assert gate.cut >= 1
    assert not gate.circuit.is_open
    gate.opened.set()
    assert await gate.circuit.through(gate.ask, 1.0) == "answer"
    await answering(gate.circuit)
    await gate.circuit.close()


async def test_a_database_may_bound_the_reads_that_say_nothing_themselves(database: Database) -> None:
    entered, leave = threading.Event(), threading.Event()

    def hang(_connection: sa.Connection) -> None:
        entered.set()
        leave.wait(30)

    database.read_within = 0.01
    with pytest.raises(StorageUnavailable, match=r"did not answer in 0\.01 s"):
        await database.read(hang)
    assert not database.answers
    leave.set()
    await answering(database)
    database.read_within = 30.0
    assert await database.read(names) == []


async def test_a_unit_that_nobody_waits_for_any_more_is_not_begun(database: Database) -> None:
    entered, leave = threading.Event(), threading.Event()

    def hold(connection: sa.Connection) -> None:
        connection.execute(add("held"))
        entered.set()
        leave.wait(30)

    holding = asyncio.create_task(database.write(hold))
    await asyncio.to_thread(entered.wait, 30)
    with pytest.raises(StorageUnavailable):
        await database.write(lambda connection: connection.execute(add("given up")), within=0.01)
    with pytest.raises(StorageUnavailable, match="does not answer"):
        await database.write(lambda connection: connection.execute(add("refused")), within=3600.0)
    assert await database.read(names, within=30.0) == []  # reading goes on
    leave.set()
    await holding
    await answering(database)
    await database.write(lambda connection: connection.execute(add("later")), within=30.0)
    assert await database.read(names) == ["held", "later"]
