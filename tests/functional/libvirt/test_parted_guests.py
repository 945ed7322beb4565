"""Guests whose source has lost the target: in the middle of post-copy, or when they had left."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, ClassVar

import pytest

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.arrivals import ARRIVAL, Arrival, write_arrival
from skep.compute.drivers.libvirt.disks import GuestDisks
from skep.compute.drivers.libvirt.domain import GuestLabel
from skep.compute.drivers.libvirt.options import Options
from skep.compute.drivers.libvirt.sent_guests import note_sent, sent_to
from skep.compute.drivers.libvirt.turns import ServerTurns
from skep.compute.drivers.live import Copying
from skep.domain.ids import InstanceUuid, new_uuid
from tests.support.libvirt_hosts import PARTS

if TYPE_CHECKING:
    import libvirt

    from skep.compute.drivers.libvirt.live import LiveMigratingLibvirtDriver

pytestmark = [*PARTS, pytest.mark.timeout(20)]


class PartedDomain:
    """A domain as libvirt has it then: paused, and with a job that goes on until its halves are joined."""

    def state(self) -> list[int]:
        import libvirt

        return [libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_POSTCOPY_FAILED]

    def jobStats(self) -> dict[str, int]:  # noqa: N802 - libvirt's
        import libvirt

        operation = libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_OUT
        return {"operation": operation, "type": libvirt.VIR_DOMAIN_JOB_UNBOUNDED}


def test_the_halves_are_joined_though_libvirt_says_that_their_job_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from skep.compute.drivers.libvirt.live import LiveMigratingLibvirtDriver  # it imports what may not be installed

    parted = PartedDomain()
    sent: list[object] = []

    def send(driver: object, domain: libvirt.virDomain, attempt: int, place: Path) -> None:
        sent.append(domain)

    monkeypatch.setattr(LiveMigratingLibvirtDriver, "_leaving", lambda *_: parted)
    monkeypatch.setattr(LiveMigratingLibvirtDriver, "_send", send)
    driver = object.__new__(LiveMigratingLibvirtDriver)
    driver._migrate(InstanceUuid(new_uuid()), 1, tmp_path)
    assert sent == [parted]


async def test_an_agent_that_starts_joins_them_though_an_end_was_wished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came too late, or the target was fenced: only where they cannot be joined the half that is here goes."""
    from skep.compute.drivers.libvirt.live import LiveMigratingLibvirtDriver  # it imports what may not be installed

    server, parted = InstanceUuid(new_uuid()), PartedDomain()
    tried: list[InstanceUuid] = []

    class Domains:
        removed: ClassVar[list[object]] = []

        def find(self, instance: InstanceUuid) -> tuple[object, GuestLabel] | None:
            label = GuestLabel(instance=instance, attempt=1, name="one", resources={})
            return None if self.removed else (parted, label)

        def remove(self, domain: object) -> None:
            self.removed.append(domain)

    async def work(driver: object, instance: InstanceUuid, what: Callable[[], object]) -> object:
        return what()

    async def watch(driver: object, instance: InstanceUuid, *_: object) -> None:
        tried.append(instance)
        raise DriverError("MigrationError", "the target is not reached")

    monkeypatch.setattr(LiveMigratingLibvirtDriver, "_work", work)
    monkeypatch.setattr(LiveMigratingLibvirtDriver, "_watch", watch)
    monkeypatch.setattr(LiveMigratingLibvirtDriver, "_begin", lambda *_: None)
    monkeypatch.setattr(LiveMigratingLibvirtDriver, "_leaving", lambda *_: parted)
    driver = object.__new__(LiveMigratingLibvirtDriver)
    driver._copyings, driver._left, driver._domains = {}, set(), Domains()  # type: ignore[assignment]
    copying = Copying()
    copying.wish("abort")
    await driver.copy_guest(server, 1, tmp_path, copying)
    assert copying.figures is not None
    assert copying.figures.halved
    with pytest.raises(DriverError, match="not reached"):
        await driver.hand_over(server, 1, tmp_path)
    assert (tried, Domains.removed) == ([server], [parted])


@pytest.mark.parametrize("alone", [False, True], ids=["its libvirtd answers", "its libvirtd has ended, too"])
@pytest.mark.parametrize(
    ("post_copy", "noted", "halved"),
    [
        pytest.param(False, None, False, id="no post-copy here"),
        pytest.param(True, None, True, id="an earlier release noted nothing"),
        pytest.param(True, False, False, id="no post-copy there"),
        pytest.param(True, True, True, id="post-copy"),
    ],
)
async def test_an_agent_that_starts_waits_for_the_target_of_a_guest_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, post_copy: bool, noted: bool | None, halved: bool, alone: bool
) -> None:
    """Until that is lost; where the guest may run there, the cell is told that nothing else is to end it."""
    from skep.compute.drivers.libvirt import live  # it imports what may not be installed

    server, copying = InstanceUuid(new_uuid()), Copying()
    asked: list[str] = []

    class Domains:
        def find(self, _instance: InstanceUuid) -> None:
            if alone and len(asked) > 1:
                raise DriverError("HypervisorUnavailable", "the source is not reached")

    def leaving(*_: object) -> None:
        asked.append("whose is it")
        if len(asked) == 4:
            copying.wish("abort")
        raise DriverError("MigrationPreCheckError", "the target is not reached")

    async def work(driver: object, instance: InstanceUuid, what: Callable[[], object]) -> object:
        return what()

    monkeypatch.setattr(live, "JOIN_SECONDS", 0.0)
    monkeypatch.setattr(live.LiveMigratingLibvirtDriver, "_work", work)
    monkeypatch.setattr(live.LiveMigratingLibvirtDriver, "_leaving", leaving)
    driver = object.__new__(live.LiveMigratingLibvirtDriver)
    driver._copyings, driver._left, driver._domains = {}, set(), Domains()  # type: ignore[assignment]
    driver._options = Options(virt_type="qemu", migration_post_copy=post_copy)
    driver._disks = GuestDisks(tmp_path, None)
    directory = driver._disks.make_place(server, 1)
    if noted is not None:
        note_sent(directory, tmp_path, ahead=noted)
    await driver.copy_guest(server, 1, tmp_path, copying)
    with pytest.raises(DriverError, match="the target is not reached"):
        await driver.hand_over(server, 1, tmp_path)
    assert len(asked) == 4
    assert copying.figures is not None
    assert copying.figures.halved is halved


class StoppedDomain:
    """A domain that libvirt lets go on here at the end: it has not heard whether its guest goes on on the target."""

    def __init__(self, server: InstanceUuid, *, sent: bool = False, paused: bool = False) -> None:
        self.server, self.sent, self.paused = server, sent, paused
        self.reasons: list[str] = []
        """Why it runs, each time that it was sent."""

    def UUIDString(self) -> str:  # noqa: N802 - libvirt's
        return self.server

    def XMLDesc(self, _flags: int) -> str:  # noqa: N802 - libvirt's
        return "<domain/>"

    def isActive(self) -> int:  # noqa: N802 - libvirt's
        return 1

    def maxMemory(self) -> int:  # noqa: N802 - libvirt's
        return 1 << 16

    def jobStats(self) -> dict[str, int]:  # noqa: N802 - libvirt's
        import libvirt

        return {"type": libvirt.VIR_DOMAIN_JOB_NONE}

    def migrateToURI3(self, *_: object) -> None:  # noqa: N802 - libvirt's
        import libvirt

        self.reasons.append("an earlier migration" if self.sent else "its own")
        self.sent = True
        raise libvirt.libvirtError("the connection is lost")

    def state(self) -> list[int]:
        import libvirt

        if self.paused:
            return [libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_USER]
        reason = libvirt.VIR_DOMAIN_RUNNING_MIGRATION_CANCELED if self.sent else libvirt.VIR_DOMAIN_RUNNING_BOOTED
        return [libvirt.VIR_DOMAIN_RUNNING, reason]

    def suspend(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.sent = self.paused = False


class PartedHost:
    """A host with one guest that is here, until it was removed, and whose target answers only at times."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, here: StoppedDomain) -> None:
        from skep.compute.drivers.libvirt import live  # it imports what may not be installed

        self.here, self.asked, self.removed = here, 0, 0
        self.answers: Callable[[], bool] = lambda: False
        """Whether the target answers, asked each time."""
        self.disks = GuestDisks(directory, None)
        self.place = directory / "attempt-2"
        self.disks.make_place(here.server, 1)
        target = Arrival(
            label=GuestLabel(instance=here.server, attempt=2, name="one", resources={}),
            uri="",
            address="",
            way="loopback",
            directory="",
            mark="",
            post_copy=True,
        )
        write_arrival(self.place, target)
        of_module = {
            "JOIN_SECONDS": 0.0,
            "LOOK": 0.01,
            "reached": self.reached,
            "has_arrived": lambda *_: here.sent or here.paused,
            "label_of": lambda _: None,
            "check_links": lambda *_: None,
            "check_cpu": lambda *_: None,
            "make_disks": lambda *_: None,
            "arriving_xml": lambda *_, **__: "",
        }
        for name, twin in of_module.items():
            monkeypatch.setattr(live, name, twin)
        monkeypatch.setattr(live.LiveMigratingLibvirtDriver, "_leave", lambda *_: None)

    def find(self, instance: InstanceUuid) -> tuple[object, GuestLabel] | None:
        label = GuestLabel(instance=instance, attempt=1, name="one", resources={}, whole=True)
        return None if self.removed else (self.here, label)

    def whole(self, instance: InstanceUuid) -> tuple[object, GuestLabel]:
        found = self.find(instance)
        assert found is not None
        return found

    def remove(self, _domain: object) -> None:
        self.removed += 1

    @contextmanager
    def reached(self, _arrival: object) -> Iterator[None]:
        self.asked += 1
        if not self.answers():
            raise DriverError("MigrationPreCheckError", "the target is not reached")
        yield

    def driver(self) -> LiveMigratingLibvirtDriver:
        """Return the driver of an agent that was started now."""
        from skep.compute.drivers.libvirt.live import LiveMigratingLibvirtDriver  # it imports what may not be installed

        driver = object.__new__(LiveMigratingLibvirtDriver)
        driver._copyings, driver._left, driver._domains = {}, set(), self  # type: ignore[assignment]
        driver._disks, driver._volumes = self.disks, SimpleNamespace(ids=lambda *_: set())  # type: ignore[assignment]
        driver._turns, driver._options = ServerTurns(), Options(virt_type="qemu", migration_post_copy=True)
        driver._lookers = ThreadPoolExecutor(1)
        return driver


@pytest.mark.parametrize("again", [False, True], ids=["the target is lost", "it is reached again"])
async def test_a_guest_that_may_run_on_the_target_stands_still_until_that_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """Else two might run."""
    server, copying = InstanceUuid(new_uuid()), Copying()
    host = PartedHost(tmp_path, monkeypatch, StoppedDomain(server))

    def answers() -> bool:
        """Twice until the guest is sent; then after a while only, or never."""
        if host.asked > 4 and not again:
            copying.wish("abort")
        return host.asked < 3 or (host.asked > 4 and again)

    host.answers, driver = answers, host.driver()
    await driver.copy_guest(server, 1, host.place, copying)
    with nullcontext() if again else pytest.raises(DriverError, match="not reached"):
        await driver.hand_over(server, 1, host.place)
    assert (host.here.paused, host.removed) == (True, 1 if again else 0)
    assert copying.figures is not None
    assert copying.figures.halved, "an abort of a user's would have it go on here"


@pytest.mark.parametrize("paused", [False, True], ids=["libvirt lets it go on", "its agent has stopped it"])
async def test_an_agent_that_starts_knows_that_a_guest_may_run_on_the_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paused: bool
) -> None:
    """It is killed while the guest stands still, or while libvirt has not let it go on yet."""
    server, copying = InstanceUuid(new_uuid()), Copying()
    host = PartedHost(tmp_path, monkeypatch, StoppedDomain(server, sent=True, paused=paused))
    note_sent(host.disks.place(server, 1), host.place, ahead=True)
    driver = host.driver()
    await driver.copy_guest(server, 1, host.place, copying)
    assert host.here.paused
    assert copying.figures is not None
    assert copying.figures.halved
    host.answers = lambda: host.asked > 4
    await driver.hand_over(server, 1, host.place)
    assert (host.asked > 4, host.removed) == (True, 1)


async def test_a_guest_that_an_earlier_release_has_sent_stands_still_until_it_is_known_where_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its agent was upgraded while it was sent, and noted nothing."""
    server = InstanceUuid(new_uuid())
    here = StoppedDomain(server)
    host, looks = PartedHost(tmp_path, monkeypatch, here), [True, True, False]

    def is_leaving(_domain: object) -> bool:
        if len(looks) == 1:
            here.sent = True
        return looks.pop(0) if looks else False

    monkeypatch.setattr("skep.compute.drivers.libvirt.live.is_leaving", is_leaving)
    driver = host.driver()
    host.answers = lambda: host.asked > 4
    await driver.hand_over(server, 1, host.place)
    assert (here.paused, host.removed) == (True, 1)


@pytest.mark.parametrize("full", [False, True])
async def test_a_guest_whose_sending_cannot_be_noted_does_not_run_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    """It leaves a host whose disk is full, and goes on on the target when the host has heard that it is there."""
    import libvirt

    server = InstanceUuid(new_uuid())
    host = PartedHost(tmp_path, monkeypatch, StoppedDomain(server))
    ways: list[int] = []

    def send(_domain: StoppedDomain, *asked: int) -> None:
        ways.append(asked[-1])
        raise libvirt.libvirtError("the connection is lost")

    def no_room(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(StoppedDomain, "migrateToURI3", send)
    if full:
        monkeypatch.setattr("skep.compute.drivers.libvirt.live.note_sent", no_room)
    host.answers = lambda: host.asked < 2
    with pytest.raises(DriverError):
        await host.driver().hand_over(server, 1, host.place)
    assert [bool(way & libvirt.VIR_MIGRATE_POSTCOPY) for way in ways] == [not full]


@pytest.mark.parametrize("before", ["no migration", "another migration"])
async def test_a_guest_that_was_not_stopped_for_the_target_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    """The target is not reached, and never had it: what is left of another migration is no reason to stop it."""
    server, is_left = InstanceUuid(new_uuid()), before == "another migration"
    host = PartedHost(tmp_path, monkeypatch, StoppedDomain(server, sent=is_left))
    directory = host.disks.place(server, 1)
    if is_left:
        note_sent(directory, tmp_path / "attempt-1", ahead=True)
    driver = host.driver()
    with pytest.raises(DriverError, match="not reached"):
        await driver.copy_guest(server, 1, host.place, Copying())
    assert not host.here.paused
    host.answers = lambda: host.asked < 4
    monkeypatch.setattr("skep.compute.drivers.libvirt.live.has_arrived", lambda *_: False)
    with pytest.raises(DriverError, match="connection is lost"):
        await driver.hand_over(server, 1, host.place)
    assert host.here.reasons == ["its own"], "what stopped it is known later"
    assert sent_to(directory, host.place) is not None
    monkeypatch.setattr(driver, "_own", lambda *_: None)
    await driver.go_on(server, 1, start=True)
    assert sent_to(directory, host.place) is None


async def test_a_guest_that_was_sent_is_awaited_where_what_its_target_said_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory of both hosts may not be mounted yet; of one that was never sent nothing is known anywhere."""
    server, copying = InstanceUuid(new_uuid()), Copying()
    host = PartedHost(tmp_path, monkeypatch, StoppedDomain(server))
    host.removed = 1
    said = (host.place / ARRIVAL).rename(tmp_path / "said")
    driver = host.driver()
    with pytest.raises(DriverError, match="no host awaits the guest"):
        await driver.copy_guest(server, 1, host.place, copying)
    note_sent(host.disks.place(server, 1), host.place, ahead=False)
    await driver.copy_guest(server, 1, host.place, copying)
    going = asyncio.create_task(driver.hand_over(server, 1, host.place))
    await asyncio.wait({going}, timeout=0.05)
    assert not going.done()
    copying.wish("abort")
    with pytest.raises(DriverError, match="what its target had said of itself is not in") as ended:
        await going
    assert ended.value.error == "StorageUnavailable"
    said.rename(host.place / ARRIVAL)
    host.here.sent, host.answers = True, lambda: True
    await driver.hand_over(server, 1, host.place)


class LeavingDomain:
    """A domain that has left when it is looked at."""

    def UUIDString(self) -> str:  # noqa: N802 - libvirt's
        return new_uuid()

    def state(self) -> list[int]:
        import libvirt

        connection = libvirt.open("test:///default")
        state: list[int] = connection.lookupByName("left").state()
        return state

    jobStats = state  # noqa: N815 - libvirt's


@pytest.mark.parametrize("is_aborted", [False, True], ids=["it leaves", "an abort is too late"])
@pytest.mark.parametrize("looks", [1, 2, 3])
async def test_a_guest_that_leaves_between_two_looks_is_handed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks: int, is_aborted: bool
) -> None:
    """An agent that starts in that moment asks the target: its own libvirtd has the guest no more."""
    from skep.compute.drivers.libvirt import live  # it imports what may not be installed

    server, copying = InstanceUuid(new_uuid()), Copying()
    if is_aborted:
        copying.wish("abort")
    label = GuestLabel(instance=server, attempt=1, name="one", resources={}, whole=True)
    found = [(LeavingDomain(), label)] * looks
    asked: list[str] = []
    left: list[InstanceUuid] = []

    class Domains:
        def find(self, _instance: InstanceUuid) -> tuple[object, GuestLabel] | None:
            return found.pop() if found else None

    def has_arrived(*_: object) -> bool:
        asked.append("has it come")
        return True

    def leave(_driver: object, instance: InstanceUuid, *_: object) -> None:
        left.append(instance)

    driver = object.__new__(live.LiveMigratingLibvirtDriver)
    of_module = {
        "JOIN_SECONDS": 0.0,
        "reached": lambda _: nullcontext(),
        "has_arrived": has_arrived,
        "arrival_in": lambda _: None,
    }
    for place, twins in ((live, of_module), (live.LiveMigratingLibvirtDriver, {"_leave": leave})):
        for name, twin in twins.items():
            monkeypatch.setattr(place, name, twin)
    driver._copyings, driver._left, driver._domains = {(server, 1): copying}, set(), Domains()  # type: ignore[assignment]
    driver._turns, driver._options = ServerTurns(), Options(virt_type="qemu")
    driver._lookers = ThreadPoolExecutor(1)
    await driver.hand_over(server, 1, tmp_path)
    assert (left, found) == ([server], [])
    found.append((LeavingDomain(), label))
    asked.clear()
    assert await driver._is_kept(server, 1, tmp_path, copying, DriverError("MigrationError", "it is lost"))
    assert asked == ["has it come"]
