"""The faults of chaos themselves: several at once never befall one thing, and stories do what they say."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import psycopg
import pytest

from skep.compute.drivers.fake import GUESTS_FILE
from skep.compute.drivers.guest_log import EventName, GuestEvent, GuestLog, read_events
from skep.contracts.eventually import PATIENCE, eventually
from skep.domain.clock import SECOND
from skep.domain.ids import InstanceUuid
from skep.processes.servers.nats import NatsServer
from skep.processes.servers.postgres import PostgresServer
from skep.processes.supervisor.child import ChildTask
from skep_lab.chaos import beside as chaos_beside
from skep_lab.chaos.beside import FaultsBeside
from skep_lab.chaos.lives import LARGER
from skep_lab.chaos.load import HOSTS, Load, chaos_config
from skep_lab.chaos.restore import RestoreStory
from skep_lab.crash.process import CloudDied, CrashProcess
from skep_lab.processes.child import RoleDied
from skep_lab.processes.clocks import HostClocks
from skep_lab.processes.cloud import SMALL_DISK, ProcessCloud, mount_memory
from skep_lab.processes.faults import ROLES, TOGETHER, ProcessFaults
from skep_lab.processes.stories import fake_time, faked_time, fill_databases_disk, lose_bus, stories
from skep_lab.witnesses import witness_guests
from skep_lab.witnesses.witness import Promised

pytestmark = pytest.mark.crash


class Child:
    """Stands for a process; notes what is done to it."""

    def __init__(self, name: str, role: str) -> None:
        self.order = ChildTask(name=name, role=role)
        self.running = True
        self.status, self.clock_offset = None, 0
        self.said: list[str] = []

    def pause(self) -> None:
        self.said.append("pause")

    def resume(self) -> None:
        self.said.append("resume")

    def kill(self) -> None:
        self.running = False
        self.said.append("kill")

    def start(self) -> None:
        self.running = True
        self.said.append("start")

    def tail(self) -> str:
        return ""


class Cloud:
    """Stands for a cloud of two processes of one role."""

    def __init__(self, **parts: Any) -> None:
        made = [Child(f"api-{number}", "api") for number in (1, 2)]
        self.children = {child.order.name: child for child in made}
        self.names = ("cell1",)
        self.databases_disk: Path | None = None
        self.__dict__.update(parts)

    def of(self, role: str) -> list[Child]:
        return [child for child in self.children.values() if child.order.role == role]


def faults_on(cloud: Cloud, passes: asyncio.Event) -> ProcessFaults:
    """Faults that last until they are let go."""

    async def wait(_seconds: float) -> None:
        await passes.wait()

    return ProcessFaults(cast(ProcessCloud, cloud), random.Random(7), wait)


async def test_faults_at_once_befall_different_processes_and_no_process_that_one_has_died_by_itself() -> None:
    cloud, passes = Cloud(), asyncio.Event()
    faults = faults_on(cloud, passes)
    under_way = [asyncio.create_task(faults.do(kind)) for kind in ("pause api", "kill api")]

    async def both() -> bool:
        return all(child.said for child in cloud.of("api"))

    await eventually(both, "both faults are under way")
    assert await faults.do("kill api") is False, "both are in other hands"
    passes.set()
    assert await asyncio.gather(*under_way) == [True, True]
    assert sorted(child.said for child in cloud.of("api")) == [["kill", "start"], ["pause", "resume"]]
    assert faults.died == []
    assert await faults.do("kill api") is True


class Bus(Child):
    """Stands for NATS."""

    async def start(self) -> None:  # type: ignore[override]  # as NATS starts
        Child.start(self)


@pytest.mark.parametrize(("seed", "with_them"), [*zip((2, 1, 5, 0), TOGETHER, strict=True)])
async def test_several_roles_end_at_one_moment_with_nats_and_postgresql_or_without(
    seed: int, with_them: tuple[str, ...]
) -> None:
    servers: dict[str, Child] = {"nats": Bus("nats", ""), "postgresql": Child("postgresql", "")}
    children = {f"{role}-1": Child(f"{role}-1", role) for role in ROLES}
    cloud = Cloud(children=children, nats=servers["nats"], postgres=servers["postgresql"])
    everything = children | servers
    ended: list[str] = []

    async def wait(_seconds: float) -> None:
        ended.extend(name for name, one in everything.items() if not one.running)

    faults = ProcessFaults(cast(ProcessCloud, cloud), random.Random(seed), wait)
    assert await faults.do("kill together")
    assert set(ended) & servers.keys() == set(with_them)
    assert len(set(ended) - servers.keys()) >= 2
    for name, one in everything.items():
        assert one.said == (["kill", "start"] if name in ended else [])


async def test_what_is_reserved_is_taken_by_no_fault_more() -> None:
    cloud, passes = Cloud(), asyncio.Event()
    faults = faults_on(cloud, passes)
    killing = asyncio.create_task(faults.do("kill api"))

    async def killed() -> bool:
        return not faults.are_free(["api-1", "api-2"])

    await eventually(killed, "a fault has one of them")
    with faults.reserving(["api-1", "api-2"]):
        assert await faults.do("kill api") is False
        passes.set()
        assert await killing is True
        assert faults.are_free(["api-1", "api-2"])
        assert await faults.do("kill api") is False
    assert await faults.do("kill api") is True


async def test_a_process_that_ends_by_itself_is_noted_and_started() -> None:
    cloud, passes = Cloud(), asyncio.Event()
    passes.set()
    cloud.children["api-1"].running = False
    faults = faults_on(cloud, passes)
    await faults.do("kill api")
    assert len(faults.died) == 1


def test_each_host_of_chaos_has_room_for_all_that_is_asked_for() -> None:
    for builds in (40, 1000):
        fake = chaos_config(Path(), builds).compute.fake
        rooms = fake.vcpus // LARGER.vcpus, fake.memory_mb // LARGER.memory_mb, fake.disk_gb // LARGER.root_gb
        assert min(rooms) > 2 * builds, f"one of {HOSTS} hosts may be all that faults leave"


@pytest.mark.needs_part("nats-server")
async def test_a_lost_bus_has_forgotten_what_it_stored(tmp_path: Path) -> None:
    passes = asyncio.Event()
    passes.set()
    nats = NatsServer(tmp_path / "nats")
    await nats.start()
    try:
        kept = nats.store / "kept"
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.touch()
        port = nats.port
        await lose_bus(faults_on(Cloud(nats=nats), passes))
        assert nats.port == port
        assert not kept.exists()
    finally:
        nats.stop()


@pytest.mark.needs_part("postgres")
async def test_databases_whose_disk_was_full_go_on_with_what_they_had() -> None:
    postgres = PostgresServer(None, prefix=(), own_session=False, **SMALL_DISK)
    if not mount_memory(postgres.folder, 256 << 20):
        postgres.remove()
        pytest.skip("no disk can be filled: mounting one takes root")
    passes = asyncio.Event()
    try:
        await asyncio.to_thread(postgres.start)
        with postgres.connect() as connection:
            connection.execute("CREATE TABLE rows AS SELECT 1 AS number")
        cloud = Cloud(postgres=postgres, databases_disk=postgres.folder)
        filling = asyncio.create_task(fill_databases_disk(faults_on(cloud, passes)))
        ballast = postgres.folder / "ballast"

        async def full() -> bool:
            return ballast.exists() and not os.statvfs(postgres.folder).f_bavail

        await eventually(full, "the disk is full")
        with pytest.raises(psycopg.Error), postgres.connect() as connection:
            connection.execute("CREATE TABLE more AS SELECT generate_series(1, 10000000)")
        passes.set()
        await filling
        with postgres.connect() as connection:
            assert connection.execute("SELECT number FROM rows").fetchall() == [(1,)]
            connection.execute("INSERT INTO rows VALUES (2)")
    finally:
        postgres.remove()
        await asyncio.to_thread(subprocess.run, ["umount", str(postgres.folder)], check=True)
        postgres.folder.rmdir()


@pytest.mark.needs_part("faketime")
def test_a_faked_clock_is_wrong_and_nothing_waits_longer_for_it() -> None:
    words = "import time; print(time.time(), time.monotonic())"
    environment = {**os.environ, **faked_time(), "FAKETIME": "+3600s"}
    before = time.time(), time.monotonic()
    told = subprocess.run([sys.executable, "-c", words], env=environment, capture_output=True, text=True, check=True)
    faked = tuple(map(float, told.stdout.split()))
    after = time.time(), time.monotonic()
    assert before[0] < faked[0] - 3600 < after[0]
    assert before[1] < faked[1] < after[1]


@pytest.mark.needs_part("faketime")
@pytest.mark.parametrize("role", ["api", "compute"])
async def test_a_process_gets_its_own_clock_back(role: str) -> None:
    passes = asyncio.Event()
    told: list[Any] = []
    noted: list[tuple[Path, int]] = []
    passes.set()

    def program(child: Child, variables: dict[str, str], what: str) -> Any:
        assert variables["FAKETIME"][0] in "+-"
        told.append((child.order.name, what, int(variables["FAKETIME"][:-1]) * SECOND))
        steps = {name: lambda name=name: told.append(name) for name in ("start", "wait_started", "kill")}
        return SimpleNamespace(**steps)

    clocks = SimpleNamespace(set=lambda directory, ahead: noted.append((directory, ahead)))
    cloud = Cloud(program=program, host_clocks=clocks, host_directory=lambda child: Path(child.order.name))
    for child in cloud.children.values():
        child.order = ChildTask(name=child.order.name, role=role)
    assert await fake_time(faults_on(cloud, passes), role, faked_time())
    assert told[1:] == ["start", "wait_started", "kill"]
    name, what, wrong = told[0]
    assert what == "faketime"
    assert cloud.children[name].said == ["kill", "start"]
    assert noted == ([(Path(name), wrong), (Path(name), 0)] if role == "compute" else [])


@pytest.mark.needs_part("faketime")
@pytest.mark.parametrize("waits", [True, False])
async def test_a_process_with_a_wrong_clock_that_waits_for_a_database_has_not_died(*, waits: bool) -> None:
    def wait_started() -> None:
        raise RoleDied("did not start")

    def program(*_of: object) -> Any:
        return SimpleNamespace(start=lambda: None, wait_started=wait_started, kill=lambda: None, running=waits)

    passes = asyncio.Event()
    passes.set()
    cloud = Cloud(program=program)
    for child in cloud.children.values():
        child.order = ChildTask(name=child.order.name, role="api")
    faults = faults_on(cloud, passes)
    assert await fake_time(faults, "api", faked_time())
    assert faults.died == ([] if waits else ["did not start"])


def test_guests_are_told_by_the_right_time_whatever_the_clocks_of_their_hosts_said(tmp_path: Path) -> None:
    clocks, at = HostClocks(), {"h1": 1000 * SECOND, "h2": 1000 * SECOND}

    def write(host: str, event: EventName, right: int) -> None:
        directory = tmp_path / "hosts" / "cell1" / host
        log = GuestLog(directory / GUESTS_FILE)
        wrong = clocks.ahead(host, len(read_events(directory / GUESTS_FILE)))
        log.write(GuestEvent(at=at[host] + right * SECOND + wrong, event=event, instance=InstanceUuid("i"), attempt=1))
        log.close()

    write("h1", "spawn_begun", 1)
    clocks.set(tmp_path / "hosts" / "cell1" / "h1", 3600 * SECOND)
    clocks.set(tmp_path / "hosts" / "cell1" / "h2", -3600 * SECOND)
    write("h1", "destroyed", 2)
    write("h2", "spawn_begun", 3)
    clocks.set(tmp_path / "hosts" / "cell1" / "h2", 0)
    write("h2", "spawned", 4)
    found = witness_guests.lives(tmp_path, clocks.ahead)
    assert [(life.began // SECOND, (life.ended or 0) // SECOND) for life in found] == [(1001, 1002), (1003, 0)]
    assert witness_guests.double_built(found) == []
    assert witness_guests.double_built(witness_guests.lives(tmp_path)) != []


def test_stories_that_a_machine_cannot_have_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    found = stories(faults_on(Cloud(nats=None, postgres=None), asyncio.Event()))
    assert {"nats lost", "host fenced", "host deleted", "cell deleted"} <= set(found)
    assert "databases' disk full" not in found
    assert "takes root" in capsys.readouterr().err


class Operated:
    """A cloud that has gone back in time, as its operator sees it: notes what is decided, and settles then."""

    names = ("cell1",)

    def __init__(self, differences: list[dict[str, Any]], servers: set[str]) -> None:
        self.differences = differences
        self.servers = servers
        self.decided: list[tuple[str, dict[str, Any]]] = []

    def ask(self, method: str, path: str, body: Any = None) -> httpx.Response:
        if path == "/admin/v1/recovery":
            return httpx.Response(200, json={"recovery": {"databases": [], "unread": []}})
        if path == "/admin/v1/audit":
            return httpx.Response(200, json={"audit": {"differences": self.differences, "unread": []}})
        if method == "GET":
            return httpx.Response(200, json={"servers": [{"id": one} for one in sorted(self.servers)]})
        server = path.removesuffix("/action").rpartition("/")[2]
        deleted = body == {"forceDelete": None}
        self.decided.append((server, {"delete": True} if deleted else body))
        if "undo" not in body:
            self.differences = [one for one in self.differences if one["subject"] != server]
        if deleted:
            self.servers.discard(server)
        return httpx.Response(202 if deleted else 200)


async def test_an_operator_decides_about_everything_that_a_restore_leaves_in_doubt(tmp_path: Path) -> None:
    def guest(host: str, attempt: int, phase: str = "whole") -> dict[str, Any]:
        return {"host": host, "attempt": attempt, "phase": phase}

    def difference(kind: str, subject: str, *guests: dict[str, Any]) -> dict[str, Any]:
        return {"kind": kind, "subject": subject, "evidence": {"guests": list(guests)}}

    cloud = Operated(
        [
            difference("server_in_doubt", "two", guest("h1", 1), guest("h2", 2), guest("h3", 3, "building")),
            difference("server_in_doubt", "none"),
            difference("guest_missing", "missing"),
            difference("mapping_without_row", "lost"),
            difference("host_not_told", "h9"),
        ],
        {"two", "none", "missing", "again"},
    )
    asked, died = Promised(created={"two", "none", "missing", "lost"}, deleted={"again"}), list[str]()

    def given_up(uuid: str) -> None:
        asked.created.discard(uuid)
        asked.deleted.add(uuid)

    load = SimpleNamespace(asked=asked, given_up=given_up)
    faults = SimpleNamespace(cloud=cloud, dice=random.Random(1), died=died)
    story = RestoreStory(cast(Load, load), cast(ProcessFaults, faults), tmp_path)
    await story._decide_all()
    assert died == []
    assert sorted(cloud.decided, key=str) == sorted(
        [
            ("two", {"keep": "h2"}),
            ("two", {"undo": "h1"}),
            ("two", {"undo": "h3"}),
            ("none", {"go_on": True}),
            ("missing", {"delete": True}),
            ("lost", {"delete": True}),
            ("again", {"delete": True}),
        ],
        key=str,
    )
    assert asked.created == {"two", "none"}


async def test_a_guest_that_no_row_knows_goes_if_its_user_deleted_it(tmp_path: Path) -> None:
    guests = [{"host": "h1", "attempt": 1, "phase": "whole"}]
    cloud = Operated([{"kind": "guest_unknown", "subject": "gone", "evidence": {"guests": guests}}], set())
    load = SimpleNamespace(asked=Promised(deleted={"gone"}), given_up=lambda _: None)
    faults = SimpleNamespace(cloud=cloud, dice=random.Random(1), died=[])
    story = RestoreStory(cast(Load, load), cast(ProcessFaults, faults), tmp_path)
    assert len(await story._decide_once()) == 1
    assert cloud.decided == [("gone", {"undo": "h1"})]


def test_a_cloud_that_was_not_killed_but_failed_is_no_crash(tmp_path: Path) -> None:
    process = CrashProcess(tmp_path, chaos_config(tmp_path, 1), cells=1, hosts=1)
    process.start()
    try:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGSEGV)
        with pytest.raises(CloudDied, match="the cloud ended with -11"):
            process.died_by_itself(PATIENCE)
        with pytest.raises(CloudDied, match="the cloud ended with -11"):
            process.kill()
        process.start()
        process.kill()
    finally:
        process.stop()


async def test_a_database_that_its_halted_process_locks_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "db").mkdir()
    monkeypatch.setattr(chaos_beside, "PATIENCE_SECONDS", 0.05)

    async def wait(_seconds: float) -> None:
        raise AssertionError("nothing is locked, so nothing lasts")

    process = CrashProcess(tmp_path, chaos_config(tmp_path, 1), cells=1, hosts=1)
    process.state = tmp_path
    with closing(sqlite3.connect(tmp_path / "db" / "api.db", isolation_level=None)) as other:
        other.execute("CREATE TABLE t (x)")
        other.execute("BEGIN IMMEDIATE")
        assert not await FaultsBeside(process, random.Random(1), wait).do("locked")


async def test_a_database_is_locked_as_long_as_the_fault_lasts(tmp_path: Path) -> None:
    (tmp_path / "db").mkdir()
    path, passes = tmp_path / "db" / "api.db", asyncio.Event()
    with closing(sqlite3.connect(path)) as made:
        made.execute("CREATE TABLE t (x)")

    async def wait(_seconds: float) -> None:
        await passes.wait()

    def is_locked() -> bool:
        with closing(sqlite3.connect(path, timeout=0)) as other:
            try:
                other.execute("INSERT INTO t VALUES (1)")
            except sqlite3.OperationalError as error:
                return "locked" in str(error)
            return False

    process = CrashProcess(tmp_path, chaos_config(tmp_path, 1), cells=1, hosts=1)
    process.state = tmp_path
    beside = FaultsBeside(process, random.Random(1), wait)
    locking = asyncio.create_task(beside.do("locked"))

    async def locked() -> bool:
        return is_locked()

    await eventually(locked, "the database is locked")
    assert await beside.do("locked") is False, "there is no other database"
    assert await beside.do("halted") is False, "no process runs"
    passes.set()
    assert await locking is True
    assert not is_locked()


class Breaking(Load):
    """A load whose disturber fails while nothing runs that could be asked."""

    async def begin(self) -> None:
        """The cloud stands already."""

    async def end(self) -> None:
        """The cloud stays."""

    async def disturb(self) -> None:
        self.up.clear()
        raise sqlite3.OperationalError("database is locked")


async def test_a_run_ends_when_a_fault_cannot_be_done(tmp_path: Path) -> None:
    """It had hung: requests waited for a cloud that no hand was left to start."""
    request = httpx.Request("POST", "http://cloud/os-server-groups")
    made = httpx.Response(200, json={"server_group": {"id": "group"}}, request=request)
    cloud = SimpleNamespace(ask=lambda *_: made, image="image", state=tmp_path)
    async with asyncio.timeout(30):
        with pytest.raises(ExceptionGroup) as raised:
            await Breaking(cast(Any, cloud), seed=1, builds=2, duration=0.1).run()
    assert raised.group_contains(sqlite3.OperationalError, match="database is locked")
