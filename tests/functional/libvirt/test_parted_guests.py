"""Guests whose source has lost the target: in the middle of post-copy, or when they had left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.domain import GuestLabel
from skep.compute.drivers.libvirt.options import Options
from skep.compute.drivers.libvirt.turns import ServerTurns
from skep.compute.drivers.live import Copying
from skep.domain.ids import InstanceUuid, new_uuid
from tests.support.libvirt_hosts import PARTS

if TYPE_CHECKING:
    import libvirt

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
@pytest.mark.parametrize("post_copy", [False, True])
async def test_an_agent_that_starts_waits_for_the_target_of_a_guest_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, post_copy: bool, alone: bool
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
    await driver.copy_guest(server, 1, tmp_path, copying)
    with pytest.raises(DriverError, match="the target is not reached"):
        await driver.hand_over(server, 1, tmp_path)
    assert len(asked) == 4
    assert copying.figures is not None
    assert copying.figures.halved is post_copy


class StoppedDomain:
    """A domain that libvirt lets go on here at the end: it has not heard whether its guest goes on on the target."""

    sent = paused = False

    def state(self) -> list[int]:
        import libvirt

        if self.paused:
            return [libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_USER]
        reason = libvirt.VIR_DOMAIN_RUNNING_MIGRATION_CANCELED if self.sent else libvirt.VIR_DOMAIN_RUNNING_BOOTED
        return [libvirt.VIR_DOMAIN_RUNNING, reason]

    def suspend(self) -> None:
        self.paused = True


@pytest.mark.parametrize("again", [False, True], ids=["the target is lost", "it is reached again"])
async def test_a_guest_that_may_run_on_the_target_stands_still_until_that_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """Else two might run."""
    import libvirt

    from skep.compute.drivers.libvirt import live  # it imports what may not be installed

    server, copying, here = InstanceUuid(new_uuid()), Copying(), StoppedDomain()
    asked: list[str] = []
    removed: list[object] = []

    class Domains:
        def find(self, instance: InstanceUuid) -> tuple[object, GuestLabel] | None:
            return None if removed else (here, GuestLabel(instance=instance, attempt=1, name="one", resources={}))

        def remove(self, domain: object) -> None:
            removed.append(domain)

    @contextmanager
    def reached(_: object) -> Iterator[None]:
        asked.append("has it come")
        if len(asked) == 3:
            if again:
                yield
                return
            copying.wish("abort")
        raise DriverError("MigrationPreCheckError", "the target is not reached")

    async def work(driver: object, instance: InstanceUuid, what: Callable[[], object]) -> object:
        return what()

    def send(*_: object) -> None:
        here.sent = True
        raise libvirt.libvirtError("the connection is lost")

    async def look(driver: object, what: Callable[[], object]) -> None:
        """What is shown of it is not looked at."""

    driver = object.__new__(live.LiveMigratingLibvirtDriver)
    of_module = {
        "JOIN_SECONDS": 0.0,
        "LOOK": 0.01,
        "reached": reached,
        "has_arrived": lambda *_: True,
        "arrival_in": lambda _: None,
        "is_leaving": lambda _: False,
    }
    of_driver = {
        "_work": work,
        "_look": look,
        "_send": send,
        "_leave": lambda *_: None,
        "_leaving": lambda *_: None if removed else here,
        "_is_post_copy": lambda *_: True,
    }
    for place, twins in ((live, of_module), (live.LiveMigratingLibvirtDriver, of_driver)):
        for name, twin in twins.items():
            monkeypatch.setattr(place, name, twin)
    driver._copyings, driver._left, driver._domains = {(server, 1): copying}, set(), Domains()  # type: ignore[assignment]
    driver._turns, driver._options = ServerTurns(), Options(virt_type="qemu", migration_post_copy=True)
    with nullcontext() if again else pytest.raises(DriverError, match="connection is lost"):
        await driver.hand_over(server, 1, tmp_path)
    assert (len(asked), here.paused, removed) == (3, True, [here] if again else [])
    assert copying.figures is not None
    assert copying.figures.halved, "an abort of a user's would have it go on here"


class LeavingDomain:
    """A domain that has left when it is looked at."""

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
