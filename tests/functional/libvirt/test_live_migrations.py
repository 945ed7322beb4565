"""A guest that counts goes from one libvirtd to another, or stays, whatever ends on the way; it never counts anew."""

from __future__ import annotations

import asyncio
import getpass
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from skep.compute.drivers.base import Driver, DriverError, ImageDriver
from skep.compute.drivers.libvirt import setup
from skep.compute.drivers.libvirt.options import Options
from skep.compute.drivers.live import Copying
from skep.contracts.eventually import eventually
from skep.contracts.live_migrations import remove
from skep.domain.ids import InstanceUuid, new_uuid
from skep.domain.images import Image
from skep.domain.instances import PowerState
from skep.domain.moves import ABORTED
from skep.domain.vifs import Vif, VifAddress, VifSubnet
from skep_lab.crash.counting_guests import COUNTS, counted
from skep_lab.libvirt_daemons import LibvirtDaemon
from tests.support.agents import instance
from tests.support.libvirt_daemons import DAEMON_PARTS, daemon_driver, two_daemons
from tests.support.libvirt_hosts import is_root
from tests.support.lost_answers import FINISH, losing

if TYPE_CHECKING:
    from skep.compute.drivers.libvirt.live import LiveMigratingLibvirtDriver

pytestmark = [*DAEMON_PARTS, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[3]
SLOW = {"migration_mib_per_second": 1}
"""The guest writes faster: the copying never ends by itself."""
QEMU_USER = Options(virt_type="qemu").user
HAS = {"VCPU": 1, "MEMORY_MB": 64}


@pytest.fixture(scope="module")
def daemons() -> Iterator[tuple[LibvirtDaemon, LibvirtDaemon]]:
    with two_daemons() as pair:
        yield pair


def live(driver: Driver) -> LiveMigratingLibvirtDriver:
    from skep.compute.drivers.libvirt.live import LiveMigratingLibvirtDriver  # it imports what may not be installed

    assert isinstance(driver, LiveMigratingLibvirtDriver)
    return driver


class Hosts:
    """Two hosts, and a guest on the first."""

    def __init__(
        self,
        daemons: tuple[LibvirtDaemon, LibvirtDaemon],
        home: Path,
        *,
        shared: bool,
        options: Mapping[str, Any] = SLOW,
        root_gb: int = 0,
        source: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """`source`: options of the first host alone."""
        self.daemons = daemons
        name = "shared" if shared else "own"
        self.directories = (daemons[0].root / name, daemons[0 if shared else 1].root / name)
        self.source, self.target = (
            live(daemon_driver(daemon, home, {**options, **own}))
            for daemon, home, own in zip(daemons, self.directories, (source, {}), strict=True)
        )
        self.place, self.image = home / "place", home / "counts.raw"
        self.image.write_bytes(COUNTS)
        flavor = msgspec.structs.replace(instance().flavor, memory_mb=64, root_gb=root_gb, swap_mb=1)
        self.server = msgspec.structs.replace(
            instance(),
            uuid=InstanceUuid(new_uuid()),
            flavor=flavor,
            image=Image(id=new_uuid(), disk_format="raw"),
        )

    async def spawn(self) -> None:
        """Make the guest, and await that it counts and that the target awaits it."""
        driver: Driver = self.source
        assert isinstance(driver, ImageDriver)
        await self.connect(1)
        for resource in driver.plan(self.server, 1):
            if resource.from_image:
                await driver.prepare_from(self.server, 1, resource, self.image)
            else:
                await driver.prepare(self.server, 1, resource)
        await driver.spawn(self.server, 1, HAS)
        await self.counts_on(1, 0)
        await self.connect(2)
        await self.target.await_guest(self.server, 2, HAS, None, self.place)

    async def connect(self, attempt: int) -> None:
        """Connect what the guest of an attempt needs of other services."""

    def said(self, attempt: int) -> bytes:
        """Return what the console of an attempt has."""
        home = self.directories[attempt - 1] / "guests" / f"{self.server.uuid}_{attempt}"
        return (home / "console.log").read_bytes()

    def counted(self, attempt: int) -> int:
        """Return how far the guest of an attempt has counted."""
        return counted(self.said(attempt))

    async def counts_on(self, attempt: int, before: int) -> None:
        """Wait until the guest has gone on counting behind a number."""

        async def so() -> bool:
            return self.counted(attempt) > before

        await eventually(so, "the guest counts on")

    async def copied(self, copying: Copying) -> asyncio.Task[None]:
        """Begin to hand the guest over, and wait until all of its memory was copied once."""
        await self.source.copy_guest(self.server.uuid, 1, self.place, copying)
        going = asyncio.create_task(self.source.hand_over(self.server.uuid, 1, self.place))

        async def so() -> bool:
            assert not going.done(), going.exception()
            figures = copying.figures
            return figures is not None and figures.memory_processed > 0 and figures.memory_remaining < 5 << 20

        await eventually(so, "what is left is what the guest writes")
        return going

    async def goes_on_here(self) -> None:
        """See that the guest goes on where it was, and that nothing is left on the target."""
        at = self.counted(1)
        assert await self.source.go_on(self.server.uuid, 1, start=True) is PowerState.RUNNING
        await self.counts_on(1, at)
        disk = self.directories[0] / "guests" / f"{self.server.uuid}_1" / "disk"
        if self.server.image is not None:
            assert disk.owner() == (QEMU_USER if is_root() else getpass.getuser()), "QEMU can open it again"
        await remove(self.target, self.server, 2)
        assert self.left(1) == ([], [])

    async def went(self, *, anew: bool = False) -> None:
        """See that the guest goes on on the target, and that nothing is left on the source.

        What it said before went with it; `anew`: its console begins anew.
        """
        at, before = self.counted(1), self.said(1)
        assert await self.target.take_over(self.server, 2, HAS, None, self.place, start=True) is PowerState.RUNNING
        await remove(self.source, self.server, 1)
        assert self.left(0) == ([], [])
        await self.counts_on(2, at)
        assert self.said(2).startswith(before) is not anew

    def left(self, number: int) -> tuple[list[str], list[str]]:
        """Return the domains and pools of a host, and the files of its attempt."""
        import libvirt

        connection = libvirt.open(self.daemons[number].uri)
        try:
            names = [one.name() for one in (*connection.listAllDomains(), *connection.listAllStoragePools())]
        finally:
            connection.close()
        guests = self.directories[number] / "guests"
        return names, [path.name for path in guests.iterdir() if path.name.endswith(f"_{number + 1}")]


@asynccontextmanager
async def with_a_guest(two: Hosts) -> AsyncIterator[Hosts]:
    """Make a guest on the first of two hosts; leave nothing."""
    await two.spawn()
    yield two
    for driver, attempt in ((two.source, 1), (two.target, 2)):
        await remove(driver, two.server, attempt)
        driver.close()
    assert (two.left(0), two.left(1)) == (([], []), ([], []))


@pytest.fixture(params=[False, True], ids=["own disks", "shared storage"])
async def hosts(
    request: pytest.FixtureRequest, daemons: tuple[LibvirtDaemon, LibvirtDaemon], tmp_path: Path
) -> AsyncIterator[Hosts]:
    async with with_a_guest(Hosts(daemons, tmp_path, shared=request.param)) as two:
        yield two


@pytest.mark.sampled(1)
async def test_a_forced_end_pauses_the_guest_and_it_goes_on_elsewhere(hosts: Hosts) -> None:
    copying = Copying()
    going = await hosts.copied(copying)
    copying.wish("complete")
    await going
    await hosts.went()


async def test_a_server_with_interfaces_is_refused_by_name(hosts: Hosts) -> None:
    subnet = VifSubnet(id="s", cidr="10.7.0.0/24", version=4, addresses=(VifAddress("10.7.0.9"),))
    vif = Vif(
        id="p", mac_address="fa:16:3e:00:00:01", network_id="n", network_name="inside", mtu=1442, subnets=(subnet,)
    )
    server = msgspec.structs.replace(hosts.server, vifs=(vif,))
    with pytest.raises(DriverError, match="networks: ") as raised:
        await hosts.target.await_guest(server, 2, server.flavor.resources(), None, hosts.place)
    assert raised.value.error == "MigrationPreCheckError"
    await hosts.goes_on_here()


@pytest.mark.sampled(1)
async def test_an_abort_leaves_the_guest_where_it_was(hosts: Hosts) -> None:
    copying = Copying()
    going = await hosts.copied(copying)
    copying.wish("abort")
    with pytest.raises(DriverError) as raised:
        await going
    assert raised.value.error == ABORTED
    await hosts.goes_on_here()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("back", [False, True], ids=["goes on", "comes back"])
async def test_an_agent_that_is_killed_is_followed_by_one_that_knows(hosts: Hosts, back: bool) -> None:
    """The libvirtds go on without it."""
    leave = [sys.executable, "-m", "tests.support.libvirt_agent", "leave"]
    about = [hosts.directories[0], hosts.server.uuid, hosts.place, hosts.daemons[0].uri]
    agent = await asyncio.create_subprocess_exec(*leave, *map(str, about), cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    assert agent.stdout is not None
    said = await agent.stdout.readline()
    agent.kill()
    await agent.wait()
    assert said == b"leaving\n"
    if back:
        await hosts.goes_on_here()
        return
    copying = Copying()
    await hosts.source.copy_guest(hosts.server.uuid, 1, hosts.place, copying)
    assert copying.figures is not None
    assert copying.figures.memory_processed > 0, "it is the migration that was begun"
    copying.wish("complete")
    await hosts.source.hand_over(hosts.server.uuid, 1, hosts.place)
    await hosts.went()


@pytest.mark.sampled(1)
async def test_a_target_that_dies_leaves_the_guest_where_it_was(hosts: Hosts) -> None:
    going = await hosts.copied(Copying())
    hosts.daemons[1].kill()
    try:
        with pytest.raises(DriverError) as raised:
            await going
        assert raised.value.error == "MigrationError"
        assert await hosts.source.go_on(hosts.server.uuid, 1, start=True) is PowerState.RUNNING
        with pytest.raises(DriverError, match="is not reached at"):
            await hosts.source.copy_guest(hosts.server.uuid, 1, hosts.place, Copying())
    finally:
        hosts.daemons[1].start()
    await hosts.goes_on_here()


async def test_a_guest_that_has_left_goes_on_though_its_last_words_cannot_be_handed_on(
    daemons: tuple[LibvirtDaemon, LibvirtDaemon], tmp_path: Path
) -> None:
    """It can go on nowhere else."""
    async with with_a_guest(Hosts(daemons, tmp_path, shared=True, options={})) as two:
        (two.place / "console.log").mkdir()
        await two.source.copy_guest(two.server.uuid, 1, two.place, Copying())
        for _ in range(2):
            await two.source.hand_over(two.server.uuid, 1, two.place)
        await two.went(anew=True)


@pytest.mark.parametrize("heard", [True, False], ids=["heard", "not heard"])
async def test_a_guest_that_has_come_is_the_targets_though_its_libvirtd_ends(
    daemons: tuple[LibvirtDaemon, LibvirtDaemon],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    heard: bool,
) -> None:
    """Where the source has not heard whether it has come, it waits until it can ask."""
    import libvirt

    async with with_a_guest(Hosts(daemons, tmp_path, shared=True, options={})) as two:
        send = two.source._send

        def send_last(*about: Any) -> None:
            send(*about)
            daemons[1].kill()
            if not heard:
                raise libvirt.libvirtError("the connection is lost")

        async def waits() -> bool:
            return going.done() or "is tried anew" in caplog.text

        await two.source.copy_guest(two.server.uuid, 1, two.place, Copying())
        monkeypatch.setattr(two.source, "_send", send_last)
        going = asyncio.create_task(two.source.hand_over(two.server.uuid, 1, two.place))
        try:
            await eventually(waits, "the guest is sent")
            assert going.done() is heard
        finally:
            daemons[1].start()
        await going
        await two.went()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("shared", [False, True], ids=["own disks", "shared storage"])
async def test_a_guest_that_goes_on_at_once_runs_once_though_its_source_has_not_heard_so(
    daemons: tuple[LibvirtDaemon, LibvirtDaemon], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    """As with post-copy, which few machines let QEMU have: libvirt has the guest of the source go on as well."""
    import libvirt

    from skep.compute.drivers.libvirt import live as module  # it imports what may not be installed
    from skep.compute.drivers.libvirt.arrivals import read_arrival, write_arrival

    monkeypatch.setattr(module, "FLAGS", module.FLAGS & ~libvirt.VIR_MIGRATE_PAUSED)
    async with with_a_guest(Hosts(daemons, tmp_path, shared=shared, options={})) as two:
        arrival = read_arrival(two.place)
        assert arrival is not None
        write_arrival(two.place, msgspec.structs.replace(arrival, uri=f"{arrival.uri}.lossy"))
        way = Path(arrival.uri.partition("socket=")[2])
        with losing(way.with_name(f"{way.name}.lossy"), way, FINISH):
            await two.source.copy_guest(two.server.uuid, 1, two.place, Copying())
            monkeypatch.setattr(two.source, "_is_post_copy", lambda _: True)
            flags = two.source._flags
            monkeypatch.setattr(two.source, "_flags", lambda arrival, **_: flags(arrival, post_copy=False))
            await two.source.hand_over(two.server.uuid, 1, two.place)
        assert two.left(0)[0] == []
        await two.went(anew=True)


async def test_a_target_without_the_cpu_is_refused_by_name(daemons: tuple[LibvirtDaemon, LibvirtDaemon]) -> None:
    import libvirt

    from skep.compute.drivers.libvirt.live_targets import check_cpu  # it imports what may not be installed

    guest = "<domain type='qemu'><os><type arch='x86_64' machine='pc'>hvm</type></os><cpu mode='custom' match='exact'>"
    target = libvirt.open(daemons[1].uri)
    try:
        check_cpu(target, f"{guest}<model>qemu64</model></cpu></domain>")
        with pytest.raises(DriverError) as raised:
            check_cpu(target, f"{guest}<model>Skylake-Server</model></cpu></domain>")
    finally:
        target.close()
    assert raised.value.error == "InvalidCPUInfo"


@pytest.mark.skipif(
    not setup.UNPRIVILEGED_FAULTS.exists() or setup.UNPRIVILEGED_FAULTS.read_text().strip() == "0",
    reason="no post-copy for a QEMU that is not root: vm.unprivileged_userfaultfd is 0",
)
async def test_with_post_copy_the_guest_goes_on_before_all_is_there(
    daemons: tuple[LibvirtDaemon, LibvirtDaemon], tmp_path: Path
) -> None:
    options = {**SLOW, "migration_post_copy": True}
    async with with_a_guest(Hosts(daemons, tmp_path, shared=True, options=options)) as two:
        copying = Copying()
        going = await two.copied(copying)
        copying.wish("complete")
        await two.counts_on(2, 0)
        # It has no way back any more.
        copying.wish("abort")
        await going
        await two.went(anew=True)


async def test_a_guest_that_writes_much_is_slowed_down_where_that_is_set(
    daemons: tuple[LibvirtDaemon, LibvirtDaemon], tmp_path: Path
) -> None:
    import libvirt

    options = {**SLOW, "migration_auto_converge": True}
    async with with_a_guest(Hosts(daemons, tmp_path, shared=True, options=options)) as two:
        copying = Copying()
        going = await two.copied(copying)
        connection = libvirt.open(daemons[0].uri)

        async def slowed() -> bool:
            stats = connection.lookupByUUIDString(two.server.uuid).jobStats()
            return going.done() or stats.get("auto_converge_throttle", 0) > 0

        await eventually(slowed, "the guest is slowed down")
        connection.close()
        copying.wish("complete")
        await going
        await two.went()


async def test_what_is_empty_of_a_disk_takes_no_room_on_the_target(
    daemons: tuple[LibvirtDaemon, LibvirtDaemon], tmp_path: Path
) -> None:
    async with with_a_guest(Hosts(daemons, tmp_path, shared=False, options={}, root_gb=1)) as two:
        await two.source.copy_guest(two.server.uuid, 1, two.place, Copying())
        await two.source.hand_over(two.server.uuid, 1, two.place)
        [place] = (two.directories[1] / "guests").iterdir()
        assert (place / "disk").stat().st_blocks * 512 < 16 << 20
        await two.went()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("shared", [False, True], ids=["own disks", "shared storage"])
async def test_a_config_drive_with_fat_comes_along(
    daemons: tuple[LibvirtDaemon, LibvirtDaemon], tmp_path: Path, shared: bool
) -> None:
    """Whatever the target makes for its own guests."""
    two = Hosts(daemons, tmp_path, shared=shared, options={}, source={"config_drive_format": "vfat"})
    await two.source.write_config_drive(two.server.uuid, 1, {"openstack/latest/meta_data.json": b"{}"})
    async with with_a_guest(two):
        await two.target.write_config_drive(two.server.uuid, 2, {"openstack/latest/meta_data.json": b"{}"})
        drive = two.directories[0] / "guests" / f"{two.server.uuid}_1" / "config.img"
        content = drive.read_bytes()
        await two.source.copy_guest(two.server.uuid, 1, two.place, Copying())
        await two.source.hand_over(two.server.uuid, 1, two.place)
        await two.went()
        assert (two.directories[1] / "guests" / f"{two.server.uuid}_2" / "config.img").read_bytes() == content
