"""The `fake` driver: a host without a hypervisor, for a cloud on one machine, for tests and for trying out failures.

Its guests live in `guests.log` of the host's directory (`guest_log.py`) and survive everything, as real guests do.
How long an operation takes and which ones fail can be set.
"""

from __future__ import annotations

import asyncio
import fnmatch
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from skep.compute.drivers import fake_topology
from skep.compute.drivers.base import DriverError, Guest, HostFacts, NamedResource
from skep.compute.drivers.contents import GuestContents, GuestFile
from skep.compute.drivers.fake_console import console_lines
from skep.compute.drivers.fake_disks import FakeDisks
from skep.compute.drivers.fake_drives import FakeDrives
from skep.compute.drivers.fake_inside import GuestInsides
from skep.compute.drivers.fake_interfaces import FakeInterfaces
from skep.compute.drivers.fake_lines import FakeLines
from skep.compute.drivers.fake_live import FakeLiveMigration
from skep.compute.drivers.fake_networks import FakeNetworks
from skep.compute.drivers.fake_topology import FakeTopology
from skep.compute.drivers.fake_volumes import FakeVolumes, PromisedVolumes
from skep.compute.drivers.guest_log import EventName, GuestEvent, GuestLog, read_events
from skep.domain.clock import SECOND, Clock
from skep.domain.ids import InstanceUuid
from skep.domain.instances import Instance, PowerState
from skep.domain.providers import Allocation
from skep.domain.questions import CpuDiagnostics, DiskDiagnostics, GuestDiagnostics
from skep.domain.resources import DISK_GB, MEMORY_MB, VCPU, Inventory, Resources

GUESTS_FILE = "guests.log"
INSIDES = "guests"
DISKS = "disks"
EPHEMERALS = "ephemeral/disks"
INTERFACES = "interfaces"
DRIVES = "config-drives"
PROMISED = "volumes"
RESCUE = "rescue"
"""The directory with `disks` and `guests` of rescue systems."""
DUMP = "/var/crash/vmcore"
"""The file that a crash of a fake guest leaves in it."""
HYPERVISOR_VERSION = 1_000_000

PLAN = (NamedResource(name="disk", kind="disk"),)
PLAN_FROM_IMAGE = (NamedResource(name="disk", kind="disk", from_image=True),)
EPHEMERAL = NamedResource(name="ephemeral", kind="ephemeral")
PLUGS = NamedResource(name="interfaces", kind="interfaces", interfaces=True)

TRAITS = (
    "COMPUTE_ACCELERATORS",
    "COMPUTE_DEVICE_TAGGING",
    "COMPUTE_IMAGE_TYPE_QCOW2",
    "COMPUTE_IMAGE_TYPE_RAW",
    "COMPUTE_NODE",
    "HW_CPU_X86_SSE2",
    "HW_CPU_X86_VMX",
)


class FailureRule(msgspec.Struct, frozen=True, kw_only=True):
    """A fault to show: the matching operations fail, leaving what a real failure leaves."""

    operation: str
    """`facts`, `guests`, `prepare`, `spawn`, `destroy`, or what a capability adds: `power_on`, `take_up`, ..."""
    host: str = "*"
    """Shell pattern of host names."""
    server: str = "*"
    """Shell pattern of server names."""
    error: str = "InternalError"
    """Name of the error: one of `skep.domain.builds.ABORTING`, or any other, after which another host is tried."""
    message: str = "injected failure"
    times: int | None = None
    """How often it happens; None: always."""
    after: int = 0
    """How many matching operations succeed before the first that fails."""
    hangs: bool = False
    """Instead of failing it does not return before `FakeDriver.release`."""


class FakeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a fake host has and how it behaves. Delays are seconds; 0 does not even yield to the event loop."""

    vcpus: int = 16
    memory_mb: int = 32768
    disk_gb: int = 500
    traits: tuple[str, ...] = TRAITS
    metrics: dict[str, float] = {}
    stats: dict[str, str] = {}
    prepare_delay: float = 0.0
    inside: FakeTopology | None = None
    """NUMA cells and devices; None: the host tells nothing of its inside."""
    spawn_delay: float = 0.0
    destroy_delay: float = 0.0
    power_delay: float = 0.0
    copy_delay: float = 0.0
    """Of each of the slices in which a guest that runs, or a volume of one, is copied."""
    failures: tuple[FailureRule, ...] = ()
    plugs: bool = False
    """Whether it makes interfaces, on paper: builds wait until their ports are wired."""
    networks: bool = False
    tunnel_address: str | None = None
    """Whether it brings networks, on paper, and where it says that other hosts reach it."""
    interfaces_of_host: bool = False
    """Whether no other host can have its interfaces: the ports of a build that fails here are made anew."""
    attaches_interfaces: bool = False
    """Whether it gives interfaces to guests that are there, on paper, and takes them away."""
    images: bool = False
    """Whether disks have the bytes of the servers' images; otherwise they are empty."""


class FakeDriver(FakeVolumes, FakeInterfaces, FakeLiveMigration, FakeLines, FakeNetworks):
    """Pretends to run guests. Opening it reads the host's file; `close` gives the file back, the guests stay."""

    def __init__(
        self, directory: Path, host: str, settings: FakeSettings | None = None, clock: Clock | None = None
    ) -> None:
        self.settings = settings or FakeSettings()
        self._host = host
        self._directory = directory
        self._clock = clock or Clock()
        self._log = GuestLog(directory / GUESTS_FILE)
        self._promised = PromisedVolumes(directory / PROMISED)
        self._inside = GuestInsides(directory / INSIDES)
        self._disks = FakeDisks(directory / DISKS)
        self._drives = FakeDrives(directory / DRIVES)
        self._ephemerals = FakeDisks(directory / EPHEMERALS)
        self._interfaces = FakeDisks(directory / INTERFACES)
        self._rescue_disks = FakeDisks(directory / RESCUE / DISKS)
        self._rescue_inside = GuestInsides(directory / RESCUE / INSIDES)
        self._opened_at = self._clock.now()
        self._matched: dict[int, int] = {}
        self._told: Callable[[], None] = _nothing
        self._released = asyncio.Event()

    @property
    def interfaces_of_host(self) -> bool:
        """Whether no other host can have the interfaces that it makes."""
        return self.settings.interfaces_of_host

    @property
    def attaches_interfaces(self) -> bool:
        """Whether guests that are there get and lose interfaces."""
        return self.settings.attaches_interfaces

    @property
    def wants_networks(self) -> bool:
        """Whether it is told of networks."""
        return self.settings.networks

    def tunnel_address(self) -> str | None:
        """Return where other hosts would reach it."""
        return self.settings.tunnel_address

    def on_change(self, told: Callable[[], None]) -> None:
        """Call `told` when a guest starts or stops by itself."""
        self._told = told

    def change_by_itself(self, instance: InstanceUuid, event: Literal["powered_on", "powered_off"]) -> None:
        """Let a guest start or stop as if it did so from the inside, or an administrator of the host had."""
        guest = self._log.guests[instance]
        self._write(event, instance, guest.attempt, rescued=guest.rescued)
        self._told()

    def fail(self, rules: tuple[FailureRule, ...]) -> None:
        """Let other operations fail from now on."""
        self.settings = msgspec.structs.replace(self.settings, failures=rules)
        self._matched.clear()

    def release(self) -> None:
        """Let operations that hang go on, and no further one hang."""
        self._released.set()

    def close(self) -> None:
        """Close the host's file."""
        self._log.close()

    @property
    def copy_delay(self) -> float:
        """Seconds that each slice of a guest that runs takes."""
        return self.settings.copy_delay

    async def facts(self) -> HostFacts:
        """Describe the host. Raises DriverError when a rule says so."""
        await self._fail("facts")
        settings, inside = self.settings, self.settings.inside
        return HostFacts(
            inventory={
                VCPU: Inventory(total=settings.vcpus),
                MEMORY_MB: Inventory(total=settings.memory_mb),
                DISK_GB: Inventory(total=settings.disk_gb),
                **(fake_topology.inventory(inside, settings.vcpus) if inside is not None else {}),
            },
            topology=(None if inside is None else fake_topology.topology(inside, settings.vcpus, settings.memory_mb)),
            hypervisor_type="fake",
            hypervisor_version=HYPERVISOR_VERSION,
            hypervisor_hostname=self._host,
            traits=settings.traits,
            cpu_info={
                "arch": "x86_64",
                "vendor": "fake",
                "model": "fake",
                "topology": {"sockets": 1, "cores": settings.vcpus, "threads": 1},
                "features": ["sse2", "vmx"],
            },
            supported_instances=tuple((arch, "fake", "hvm") for arch in ("x86_64", "i686")),
            metrics=settings.metrics,
            stats=settings.stats,
            uptime=_uptime(self._clock.now() - self._opened_at),
        )

    async def guests(self) -> tuple[Guest, ...]:
        """List all guests, whole and partial."""
        await self._fail("guests")
        return tuple(self._log.guests.values())

    def plan(self, instance: Instance, attempt: int) -> tuple[NamedResource, ...]:  # noqa: ARG002 - labels name them
        """Name the root disk of a guest, the ephemeral one of a flavor that has it, and interfaces that are plugged."""
        root = PLAN_FROM_IMAGE if self.settings.images and instance.image is not None else PLAN
        disks = (*root, EPHEMERAL) if instance.flavor.ephemeral_gb else root
        return (*disks, PLUGS) if self.settings.plugs and instance.vifs else disks

    async def prepare(self, instance: Instance, attempt: int, resource: NamedResource) -> None:
        """Make a disk and take the time that this takes."""
        self._kind(resource).make(instance.uuid, attempt)
        await _take(self.settings.prepare_delay)
        await self._fail("prepare", instance.name)

    async def prepare_from(self, instance: Instance, attempt: int, resource: NamedResource, image: Path) -> None:  # noqa: ARG002
        """Make the disk with the bytes of the image, and take the time that this takes."""
        await self._disks.make_from(instance.uuid, attempt, image)
        await _take(self.settings.prepare_delay)
        await self._fail("prepare", instance.name)

    async def write_config_drive(self, instance: InstanceUuid, attempt: int, files: Mapping[str, bytes]) -> None:
        """Keep the files in a directory."""
        await self._fail("write_config_drive")
        self._drives.write(instance, attempt, files)

    async def undo(self, instance: InstanceUuid, attempt: int, resource: NamedResource) -> None:
        """Remove a disk."""
        self._kind(resource).remove(instance, attempt)
        self._drives.remove(instance, attempt)
        self._promised.drop(instance, attempt)
        self._inside.drop(instance, attempt)
        self._end_rescue(instance, attempt)

    async def spawn(
        self,
        instance: Instance,
        attempt: int,
        resources: Resources,
        allocation: Allocation | None = None,
        contents: GuestContents | None = None,
    ) -> PowerState:
        """Make a guest; the one that exists under the same attempt is left as it is.

        Raises DriverError `InstanceExists` where a guest of another attempt is in the way.
        """
        there = self._log.guests.get(instance.uuid)
        if there is not None and there.attempt != attempt:
            raise DriverError("InstanceExists", f"{instance.uuid} is there already, made by attempt {there.attempt}")
        if there is not None and there.whole:
            self._get_connected(there)
            return there.power_state
        if there is None:
            self._write(
                "spawn_begun", instance.uuid, attempt, name=instance.name, resources=resources, allocation=allocation
            )
        await _take(self.settings.spawn_delay)
        await self._fail("spawn", instance.name)
        there = self._log.guests.get(instance.uuid)
        if there is None or there.attempt != attempt:
            raise DriverError("InstanceNotFound", f"{instance.uuid} was destroyed while it was made")
        if contents is not None:
            self._inside.keep(instance.uuid, attempt, contents)
        self._write("spawned", instance.uuid, attempt)
        self._get_connected(self._log.guests[instance.uuid])
        return PowerState.RUNNING

    async def destroy(self, instance: InstanceUuid, attempt: int | None = None) -> None:
        """Remove a guest, whole or partial, and its disk."""
        guest = self._log.guests.get(instance)
        await _take(self.settings.destroy_delay)
        await self._fail("destroy", guest.name if guest is not None else "")
        guest = self._log.guests.get(instance)
        if guest is not None and attempt in (None, guest.attempt):
            self._inside.remove(instance)
            for disks in (self._disks, self._ephemerals, self._drives, self._interfaces):
                disks.remove(instance, guest.attempt)
            self._end_rescue(instance, guest.attempt)
            self._write("destroyed", instance, guest.attempt)

    async def put_aside(self, instance: InstanceUuid, attempt: int) -> PowerState:
        """Remove a guest and keep its disk."""
        await _take(self.settings.power_delay)
        guest = self._log.guests.get(instance)
        await self._fail("put_aside", guest.name if guest is not None else "")
        guest = self._log.guests.get(instance)
        if guest is None or guest.attempt != attempt:
            return PowerState.NOSTATE
        self._inside.lay_aside(instance, attempt)
        self._write("destroyed", instance, attempt, kept=True)
        self._end_rescue(instance, attempt)
        return guest.power_state

    async def kept(self, instance: InstanceUuid, attempt: int) -> Mapping[str, Path]:
        """Return the disk, and what stood inside the guest."""
        await self._fail("kept")
        files = {"disk": self._disks.path(instance, attempt)}
        inside, root = self._inside.kept(instance, attempt), self._disks.kept_root(instance, attempt)
        ephemeral = self._ephemerals.place(instance, attempt)
        if inside.exists():
            files["inside"] = inside
        if root is not None:
            files["root"] = root
        if ephemeral.exists():
            files["ephemeral"] = ephemeral
        return files

    async def receive(self, instance: Instance, attempt: int, files: Mapping[str, Path]) -> None:
        """Make the disk as a copy, as large as the flavor says, and take the time that this takes."""
        await _take(self.settings.prepare_delay)
        await self._fail("receive", instance.name)
        self._inside.copy(instance.uuid, attempt, files.get("inside"))
        await self._disks.copy(instance.uuid, attempt, files["disk"], instance.flavor.root_gb, files.get("root"))
        if instance.flavor.ephemeral_gb:
            await self._receive_ephemeral(instance, attempt, files.get("ephemeral"))

    async def _receive_ephemeral(self, instance: Instance, attempt: int, kept: Path | None) -> None:
        if kept is None:
            self._ephemerals.make(instance.uuid, attempt)
        else:
            await self._ephemerals.copy(instance.uuid, attempt, kept, instance.flavor.ephemeral_gb, None)

    async def preserve(self, instance: Instance, attempt: int, former: int) -> None:
        """Copy the ephemeral disk, if there is one."""
        await self._fail("preserve", instance.name)
        kept = self._ephemerals.place(instance.uuid, former)
        if instance.flavor.ephemeral_gb and kept.exists():
            await self._receive_ephemeral(instance, attempt, kept)

    async def take_up(
        self,
        instance: Instance,
        attempt: int,
        resources: Resources,
        allocation: Allocation | None = None,
        *,
        start: bool,
    ) -> PowerState:
        """Make a guest over its disk; the one that exists under the same attempt is left as it is."""
        there = self._log.guests.get(instance.uuid)
        if there is not None and there.attempt != attempt:
            raise DriverError("InstanceExists", f"{instance.uuid} is there already, made by attempt {there.attempt}")
        if there is not None and there.whole:
            self._get_connected(there)
            return there.power_state
        self._disks.path(instance.uuid, attempt)
        if there is None:
            self._write(
                "spawn_begun", instance.uuid, attempt, name=instance.name, resources=resources, allocation=allocation
            )
        await _take(self.settings.power_delay)
        await self._fail("take_up", instance.name)
        self._inside.take_up(instance.uuid, attempt)
        self._write("spawned" if start else "powered_off", instance.uuid, attempt)
        self._get_connected(self._log.guests[instance.uuid])
        return PowerState.RUNNING if start else PowerState.SHUTDOWN

    async def power_on(self, instance: InstanceUuid) -> PowerState:
        """Start a guest; one that runs is left running."""
        return await self._power("power_on", instance, "powered_on", PowerState.RUNNING)

    async def power_off(self, instance: InstanceUuid) -> PowerState:
        """Stop a guest and end its rescue; one that is off stays off."""
        left = await self._power("power_off", instance, "powered_off", PowerState.SHUTDOWN)
        self._end_rescue(instance, self._log.guests[instance].attempt)
        return left

    async def reboot(self, instance: InstanceUuid, *, hard: bool) -> PowerState:
        """Restart a guest; one that is off is started."""
        guest = await self._operate("reboot", instance)
        self._write("rebooted", instance, guest.attempt, hard=hard, rescued=guest.rescued and not hard)
        if hard:
            self._end_rescue(instance, guest.attempt)
        return PowerState.RUNNING

    async def pause(self, instance: InstanceUuid) -> PowerState:
        """Freeze a guest that runs; one that is paused stays so."""
        return await self._halt("pause", instance, PowerState.PAUSED)

    async def unpause(self, instance: InstanceUuid) -> PowerState:
        """Let a paused guest go on; one that runs is left running."""
        return await self._go_on("unpause", instance, PowerState.PAUSED)

    async def suspend(self, instance: InstanceUuid) -> PowerState:
        """Suspend a guest that runs; one that is suspended stays so."""
        return await self._halt("suspend", instance, PowerState.SUSPENDED)

    async def resume(self, instance: InstanceUuid) -> PowerState:
        """Let a suspended guest go on; one that runs is left running."""
        return await self._go_on("resume", instance, PowerState.SUSPENDED)

    async def rescue(
        self, instance: InstanceUuid, image: Path | None = None, contents: GuestContents | None = None
    ) -> PowerState:
        """Boot a guest from a disk with the bytes of the image, or from an empty one."""
        guest = await self._operate("rescue", instance)
        if image is None:
            self._rescue_disks.make(instance, guest.attempt)
        else:
            await self._rescue_disks.make_from(instance, guest.attempt, image)
        if contents is not None:
            self._rescue_inside.keep(instance, guest.attempt, contents)
        self._write("rebooted", instance, guest.attempt, hard=True, rescued=True)
        return PowerState.RUNNING

    async def unrescue(self, instance: InstanceUuid) -> PowerState:
        """Boot a guest from its own disk; one that does so already is left running."""
        guest = await self._operate("unrescue", instance)
        if guest.rescued or guest.power_state is not PowerState.RUNNING:
            self._write("rebooted", instance, guest.attempt, hard=True)
        self._end_rescue(instance, guest.attempt)
        return PowerState.RUNNING

    def _end_rescue(self, instance: InstanceUuid, attempt: int) -> None:
        self._rescue_disks.remove(instance, attempt)
        self._rescue_inside.remove(instance)

    async def console_output(self, instance: InstanceUuid, most: int) -> bytes:
        """Tell of each boot of the guest and from which disk, and of each stop."""
        guest = await self._operate("console_output", instance)
        path = self._directory / GUESTS_FILE
        lines = await asyncio.to_thread(lambda: console_lines(read_events(path), guest))
        return b"".join(lines)[-most:] if most else b""

    async def diagnostics(self, instance: InstanceUuid) -> GuestDiagnostics:
        """Tell what the guest was made with, and the size of its disks."""
        guest = await self._operate("diagnostics", instance)
        if guest.power_state is not PowerState.RUNNING:
            raise DriverError("InstanceNotRunning", f"{instance} is {guest.power_state.name.lower()}, not running")
        sizes = [self._disks.size(instance, guest.attempt)]
        if guest.rescued:
            sizes.insert(0, self._rescue_disks.size(instance, guest.attempt))
        memory, cpus = guest.resources.get(MEMORY_MB), guest.resources.get(VCPU, 0)
        return GuestDiagnostics(
            # Clients know the words of Nova's API alone; Nova's own fake driver says this one.
            driver="libvirt",
            hypervisor="fake",
            uptime=(self._clock.now() - self._opened_at) // SECOND,
            memory_maximum=memory,
            memory_used=memory,
            cpus=tuple(CpuDiagnostics(id=number, time=0, utilisation=0) for number in range(cpus)),
            disks=tuple(DiskDiagnostics(read_bytes=size, write_bytes=0, errors_count=0) for size in sizes),
            raw={
                "memory": (memory or 0) * 1024,
                **{f"cpu{number}_time": 0 for number in range(cpus)},
                **{f"vd{'ab'[number]}_read": size for number, size in enumerate(sizes)},
            },
        )

    async def set_password(self, instance: InstanceUuid, password: str) -> PowerState:
        """Write the password into a guest that runs."""
        guest = await self._operate("set_password", instance)
        if guest.power_state is not PowerState.RUNNING:
            raise DriverError("InstanceNotRunning", f"{instance} is {guest.power_state.name.lower()}, not running")
        inside = self._inside.read(instance) or GuestContents(admin_password="")
        self._inside.keep(instance, guest.attempt, msgspec.structs.replace(inside, admin_password=password))
        return guest.power_state

    async def trigger_crash_dump(self, instance: InstanceUuid) -> PowerState:
        """Write one more dump into a guest that is not off, which goes on as it was."""
        guest = await self._operate("trigger_crash_dump", instance)
        if guest.power_state not in (PowerState.RUNNING, PowerState.PAUSED):
            raise DriverError("InstanceNotRunning", f"{instance} is {guest.power_state.name.lower()}, not running")
        inside = self._inside.read(instance) or GuestContents(admin_password="")
        dump = GuestFile(path=DUMP, contents=f"crashed at {self._clock.now()}".encode())
        self._inside.keep(instance, guest.attempt, msgspec.structs.replace(inside, files=(*inside.files, dump)))
        return guest.power_state

    async def snapshot(self, instance: InstanceUuid, disk_format: str, file: Path) -> PowerState:  # noqa: ARG002
        """Copy the bytes of the disk, whatever they are."""
        guest = await self._operate("snapshot", instance)
        await self._disks.write_to(instance, guest.attempt, file)
        return guest.power_state

    async def _power(self, operation: str, instance: InstanceUuid, event: EventName, wanted: PowerState) -> PowerState:
        guest = await self._operate(operation, instance)
        rescued = guest.rescued and wanted is not PowerState.SHUTDOWN
        if guest.power_state is not wanted or guest.rescued is not rescued:
            self._write(event, instance, guest.attempt, rescued=rescued)
        return wanted

    async def _halt(self, operation: str, instance: InstanceUuid, wanted: PowerState) -> PowerState:
        guest = await self._operate(operation, instance)
        if guest.power_state is PowerState.RUNNING:
            self._write("powered_off", instance, guest.attempt, left=wanted, rescued=guest.rescued)
        elif guest.power_state is not wanted:
            raise DriverError("InstanceNotRunning", f"{instance} is {guest.power_state.name.lower()}, not running")
        return wanted

    async def _go_on(self, operation: str, instance: InstanceUuid, halted: PowerState) -> PowerState:
        guest = await self._operate(operation, instance)
        if guest.power_state is halted:
            self._write("powered_on", instance, guest.attempt, rescued=guest.rescued)
        elif guest.power_state is not PowerState.RUNNING:
            raise DriverError("InstanceNotRunning", f"{instance} is {guest.power_state.name.lower()}")
        return PowerState.RUNNING

    async def _operate(self, operation: str, instance: InstanceUuid) -> Guest:
        """Take the operation's time and return the guest that it is about."""
        await _take(self.settings.power_delay)
        guest = self._log.guests.get(instance)
        if guest is None or not guest.whole:
            raise DriverError("InstanceNotFound", f"there is no guest {instance} on {self._host}")
        await self._fail(operation, guest.name)
        return guest

    def _kind(self, resource: NamedResource) -> FakeDisks:
        return {EPHEMERAL.kind: self._ephemerals, PLUGS.kind: self._interfaces}.get(resource.kind, self._disks)

    def _write(
        self,
        event: EventName,
        instance: InstanceUuid,
        attempt: int,
        *,
        name: str = "",
        resources: Resources | None = None,
        allocation: Allocation | None = None,
        hard: bool = False,
        kept: bool = False,
        left: PowerState | None = None,
        rescued: bool = False,
        memory: str = "",
    ) -> None:
        happened = GuestEvent(
            at=self._clock.now(),
            event=event,
            instance=instance,
            attempt=attempt,
            name=name,
            resources=resources or {},
            allocation=allocation,
            hard=hard,
            kept=kept,
            left=left,
            rescued=rescued,
            memory=memory,
        )
        self._append(happened)

    def _append(self, happened: GuestEvent) -> None:
        try:
            self._log.write(happened)
        except OSError as error:
            raise DriverError("StorageUnavailable", str(error)) from error

    async def _fail(self, operation: str, server: str = "") -> None:
        for number, rule in enumerate(self.settings.failures):
            if rule.operation != operation or not (
                fnmatch.fnmatchcase(self._host, rule.host) and fnmatch.fnmatchcase(server, rule.server)
            ):
                continue
            seen = self._matched[number] = self._matched.get(number, 0) + 1
            if seen > rule.after and (rule.times is None or seen <= rule.after + rule.times):
                if rule.hangs:
                    await self._released.wait()
                    return
                raise DriverError(rule.error, rule.message)


async def _take(seconds: float) -> None:
    if seconds:
        await asyncio.sleep(seconds)


def _nothing() -> None:
    return None


def _uptime(microseconds: int) -> str:
    """Say it as uptime(1) does, without the time of day."""
    minutes = microseconds // SECOND // 60
    days, rest = divmod(minutes, 24 * 60)
    return f"up {days} days, {rest // 60}:{rest % 60:02}, 0 users, load average: 0.00, 0.00, 0.00"
