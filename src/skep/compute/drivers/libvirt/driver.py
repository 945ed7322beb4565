"""The driver `libvirt`: the port to QEMU. Its calls run in threads of its own, one at a time for each server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import libvirt

from skep.compute.drivers.base import DriverError, Guest, HostFacts, NamedResource
from skep.compute.drivers.contents import GuestContents
from skep.compute.drivers.libvirt.bridged.networks import BridgedNetworks
from skep.compute.drivers.libvirt.connection import LibvirtConnection
from skep.compute.drivers.libvirt.consoles import ConsoleTrimmer, end_of
from skep.compute.drivers.libvirt.disks import DISK, EPHEMERAL, INTERFACES, SWAP, VOLUMES, GuestDisks
from skep.compute.drivers.libvirt.domain import GuestLabel
from skep.compute.drivers.libvirt.domains import GuestDomains, state_of, switch_off
from skep.compute.drivers.libvirt.facts import host_facts
from skep.compute.drivers.libvirt.files import guarded, handed_out
from skep.compute.drivers.libvirt.formats import FORMATS, image_format
from skep.compute.drivers.libvirt.guest_agents import ABSENT, set_password, still
from skep.compute.drivers.libvirt.interface_calls import LibvirtInterfaces
from skep.compute.drivers.libvirt.keys import refused_keys
from skep.compute.drivers.libvirt.means import HostMeans
from skep.compute.drivers.libvirt.measures import diagnostics, measures
from skep.compute.drivers.libvirt.mediated_guests import GuestMediated
from skep.compute.drivers.libvirt.options import Options
from skep.compute.drivers.libvirt.plugged.ports import GuestPorts
from skep.compute.drivers.libvirt.properties import check, wishes
from skep.compute.drivers.libvirt.screen_lines import ScreenLine, connect, screen_of
from skep.compute.drivers.libvirt.serials import SerialLine, piece_of, terminal_of
from skep.compute.drivers.libvirt.snapshots import COPY, copy_live, undo_all_cut, undo_cut
from skep.compute.drivers.libvirt.turns import ServerTurns
from skep.compute.drivers.libvirt.volume_snapshots import LibvirtVolumeSnapshots
from skep.compute.drivers.libvirt.volume_swaps import LibvirtVolumeSwaps
from skep.compute.drivers.libvirt.volumes import GuestVolumes
from skep.compute.drivers.libvirt.way_out.ways import WayOut
from skep.compute.whole_file import settle_directory
from skep.domain.host_networks import HostNetworks
from skep.domain.ids import InstanceUuid
from skep.domain.instances import Instance, PowerState
from skep.domain.measures import GuestMeasures
from skep.domain.providers import Allocation
from skep.domain.questions import GuestDiagnostics
from skep.domain.resources import Resources

log = logging.getLogger(__name__)

T = TypeVar("T")

LOOKERS = 4
"""Threads for what only looks: facts, guests, consoles."""


class LibvirtDriver(LibvirtVolumeSwaps, LibvirtVolumeSnapshots, LibvirtInterfaces):
    """The core of the port, and the capabilities of its further methods (docs/libvirt.md)."""

    def __init__(
        self,
        host: str,
        connection: LibvirtConnection,
        disks: GuestDisks,
        volumes: GuestVolumes,
        options: Options,
        directory: Path,
        bridged: BridgedNetworks | None = None,
        ports: GuestPorts | None = None,
        way_out: WayOut | None = None,
    ) -> None:
        self._host = host
        self._connection = connection
        self._disks = disks
        self._volumes = volumes
        self._options = options
        self._directory = directory
        self._bridged = bridged
        self._ports = ports
        self._emulator = None if way_out is None else way_out.emulator
        self._mediated = GuestMediated(connection, disks, options.mediated_devices)
        self._domains = GuestDomains(connection, disks, volumes, options, bridged, ports, way_out, self._mediated)
        self._refused_keys = refused_keys(HostMeans(virt_type=options.virt_type, cpu_model=options.cpu_model))
        """What guests cannot have: until libvirt was asked, all that some hosts cannot give."""
        self._turns = ServerTurns()
        self._lookers = ThreadPoolExecutor(LOOKERS, thread_name_prefix="libvirt-looks")
        self._trimmer = ConsoleTrimmer(disks.consoles, options.console_kib << 10, disks.prune)

    def bytes_owed(self, directory: Path) -> int:
        """Return what the disk of a directory owes to guests: bytes that they were promised and have not written."""
        return self._disks.owed(directory)

    def on_change(self, told: Callable[[], None]) -> None:
        """Call `told` in the event loop that runs now when a guest starts, stops, is paused or goes on.

        An agent that starts asks for this: what one that died has left of copies of disks is undone, and ports that an
        earlier release has plugged are noted as this host's.
        """
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # outside of a loop there is no agent that could be told

        def tell() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(told)

        self._connection.tell(tell)
        undo_all_cut(self._disks, self._domains, self._turns)
        self._turns.begin(INTERFACES, self._claim_ports)

    def close(self) -> None:
        """Let go of libvirt. The guests stay; what a thread is doing comes to its end."""
        self._trimmer.close()
        self._connection.close()
        self._turns.close()
        self._lookers.shutdown(wait=False, cancel_futures=True)
        if self._bridged is not None:
            self._bridged.close()

    @property
    def wants_networks(self) -> bool:
        """Whether guests are plugged into networks of the host."""
        return self._bridged is not None

    def tunnel_address(self) -> str | None:
        """Return where other hosts reach this one by VXLAN."""
        return None if self._bridged is None else self._bridged.tunnel_address or None

    async def networks(self, wanted: HostNetworks) -> None:
        """Make the host so. Cut at any point, the next call makes it whole.

        Raises DriverError: `NetworksRefused` for what is no address or id, `NetworksUnavailable`.
        """
        bridged = self._bridged
        if bridged is None:
            raise DriverError("NetworksUnavailable", "interfaces of this host end inside QEMU")

        def work() -> None:
            named(lambda: bridged.make_so(wanted, self.kept_links), "NetworksUnavailable")

        try:
            await self._turns.beside(work)
        except DriverError as error:
            if error.error == "NetworksUnavailable":
                # What failed may be one router of many networks; what fails of them now is said already.
                with contextlib.suppress(DriverError):
                    await bridged.answer(wanted)
            raise
        await bridged.answer(wanted)

    def kept_links(self) -> frozenset[str]:
        """Return the links of the host that stay though nothing wants them: those of guests. Raises libvirtError."""
        return self._domains.taps()

    async def facts(self) -> HostFacts:
        """Describe the host."""

        def look() -> HostFacts:
            connection, mediated = self._connection.get(), self._mediated.providers()
            images, described = self._disks.taken_by_images(), (self._host, self._options, self._directory)
            return host_facts(connection, *described, self._emulator, mediated, images)

        found = await self._look(look)
        self._refused_keys = found.refused_keys or self._refused_keys
        return found

    async def guests(self) -> tuple[Guest, ...]:
        """List all guests, whole and partial."""
        return await self._look(lambda: tuple(self._domains.all()))

    def plan(self, instance: Instance, attempt: int) -> tuple[NamedResource, ...]:  # noqa: ARG002 - labels name them
        """Name the disks of a server, what makes its directory first, or refuse by name what the driver cannot do."""
        check(instance, self._refused_keys)
        self._domains.check_interfaces(instance)
        if instance.image is not None:
            image_format(instance.image)
        disks = []
        if instance.volumes:
            disks.append(NamedResource(name=VOLUMES, kind="volumes"))
        if not instance.is_volume_backed:
            disks.append(NamedResource(name=DISK, kind="root", from_image=instance.image is not None))
        if instance.flavor.ephemeral_gb:
            disks.append(NamedResource(name=EPHEMERAL, kind="ephemeral"))
        if instance.flavor.swap_mb:
            disks.append(NamedResource(name=SWAP, kind="swap"))
        return (*disks, *(() if self._ports is None else self._ports.planned(instance)))

    async def prepare(self, instance: Instance, attempt: int, resource: NamedResource) -> None:
        """Make a disk that needs no image, or plug ports."""
        await self._work(instance.uuid, lambda: self._make_resource(instance, attempt, resource))

    async def prepare_from(self, instance: Instance, attempt: int, resource: NamedResource, image: Path) -> None:  # noqa: ARG002
        """Make the root disk over the bytes of the image."""
        await self._work(instance.uuid, lambda: self._disks.make_from_image(instance, attempt, image))

    async def write_config_drive(self, instance: InstanceUuid, attempt: int, files: Mapping[str, bytes]) -> None:
        """Make the config drive, which the guest has as a CD-ROM or a disk with FAT."""
        await self._work(instance, lambda: self._disks.write_drive(instance, attempt, files))

    async def undo(self, instance: InstanceUuid, attempt: int, resource: NamedResource) -> None:
        """Remove a disk, and let go of volumes and ports; with the root disk all files of the attempt."""

        def work() -> None:
            self._let_go(instance, attempt)
            self._disks.remove_one(instance, attempt, resource.name)

        await self._work(instance, work)

    async def spawn(
        self,
        instance: Instance,
        attempt: int,
        resources: Resources,
        allocation: Allocation | None = None,
        contents: GuestContents | None = None,  # noqa: ARG002 - they reach a guest by its config drive only
    ) -> PowerState:
        """Define the guest under its label, start it, and say in the label that it is whole."""
        return await self._make(instance, attempt, resources, allocation, start=True, anew=True)

    async def destroy(self, instance: InstanceUuid, attempt: int | None = None) -> None:
        """Remove a guest, whole or partial, and its disks."""

        def work() -> None:
            found = self._domains.find(instance)
            if found is not None and attempt in (None, found[1].attempt):
                switch_off(found[0])
                self._let_go(instance, found[1].attempt)
                self._domains.remove(found[0])
                self._disks.remove(instance, found[1].attempt)

        await self._work(instance, work)

    async def power_on(self, instance: InstanceUuid) -> PowerState:
        """Start a guest; one that is paused goes on, one that is suspended where it was."""

        def work() -> PowerState:
            domain, label = self._domains.whole(instance)
            state = state_of(domain)
            if state is PowerState.PAUSED:
                domain.resume()
            elif state is not PowerState.RUNNING:
                self._domains.start(domain, label)
            return state_of(domain)

        return await self._work(instance, work)

    async def power_off(self, instance: InstanceUuid) -> PowerState:
        """Have a guest shut itself down, or switch it off."""

        def work() -> PowerState:
            domain, label = self._domains.whole(instance)
            self._domains.stop(domain)
            return state_of(self._domains.end_rescue(domain, label))

        return await self._work(instance, work)

    async def reboot(self, instance: InstanceUuid, *, hard: bool) -> PowerState:
        """Stop a guest, softly if it can be, and start it."""

        def work() -> PowerState:
            domain, label = self._domains.whole(instance)
            if hard:
                switch_off(domain)
                domain = self._domains.end_rescue(domain, label)
            else:
                self._domains.stop(domain)
            self._domains.start(domain, label, libvirt.VIR_DOMAIN_START_FORCE_BOOT)
            return state_of(domain)

        return await self._work(instance, work)

    async def pause(self, instance: InstanceUuid) -> PowerState:
        """Freeze a guest that runs; one that is paused stays so."""

        def work() -> PowerState:
            domain, _ = self._domains.whole(instance)
            if _running(domain, instance, PowerState.PAUSED):
                domain.suspend()
            return PowerState.PAUSED

        return await self._work(instance, work)

    async def unpause(self, instance: InstanceUuid) -> PowerState:
        """Let a paused guest go on; one that runs is left running."""

        def work() -> PowerState:
            domain, _ = self._domains.whole(instance)
            if not _running(domain, instance, PowerState.PAUSED):
                domain.resume()
            return PowerState.RUNNING

        return await self._work(instance, work)

    async def suspend(self, instance: InstanceUuid) -> PowerState:
        """Store the memory of a guest beside libvirt's state and end it; one that is suspended stays so."""

        def work() -> PowerState:
            domain, _ = self._domains.whole(instance)
            if _running(domain, instance, PowerState.SUSPENDED):
                domain.managedSave(0)
            return PowerState.SUSPENDED

        return await self._work(instance, work)

    async def resume(self, instance: InstanceUuid) -> PowerState:
        """Start a suspended guest where it was; one that runs is left running."""

        def work() -> PowerState:
            domain, label = self._domains.whole(instance)
            if not _running(domain, instance, PowerState.SUSPENDED):
                self._domains.start(domain, label)
            return PowerState.RUNNING

        return await self._work(instance, work)

    async def rescue(
        self,
        instance: InstanceUuid,
        image: Path | None = None,
        contents: GuestContents | None = None,  # noqa: ARG002 - nothing is written into a disk
    ) -> PowerState:
        """Boot a guest from a disk with the bytes of the image, or else of its own image."""
        return await self._work(instance, lambda: self._domains.rescue(instance, image))

    async def unrescue(self, instance: InstanceUuid) -> PowerState:
        """Boot a guest from its own disk; one that is not rescued is left running, or started."""

        def work() -> PowerState:
            domain, label = self._domains.whole(instance)
            if label.rescued:
                self._domains.stop(domain)
                domain = self._domains.end_rescue(domain, label)
            if state_of(domain) is PowerState.PAUSED:
                domain.resume()
            elif not domain.isActive():
                self._domains.start(domain, label)
            return state_of(domain)

        return await self._work(instance, work)

    async def put_aside(self, instance: InstanceUuid, attempt: int) -> PowerState:
        """Stop a guest and remove it from libvirt; its files stay, the memory of a suspended one does not."""

        def work() -> PowerState:
            found = self._domains.find(instance)
            if found is None or found[1].attempt != attempt:
                return PowerState.NOSTATE
            domain, label = found
            state = state_of(domain) if label.whole else PowerState.NOSTATE
            self._domains.stop(domain)
            self._let_go(instance, attempt)
            self._domains.remove(domain)
            self._disks.remove_rescue(instance, attempt)
            return state

        return await self._work(instance, work)

    async def take_up(
        self,
        instance: Instance,
        attempt: int,
        resources: Resources,
        allocation: Allocation | None = None,
        *,
        start: bool,
    ) -> PowerState:
        """Define a guest over the disks of an attempt, and start it if told to."""
        return await self._make(instance, attempt, resources, allocation, start=start, anew=False)

    async def kept(self, instance: InstanceUuid, attempt: int) -> Mapping[str, Path]:
        """Return the root disk, what is under it, and the ephemeral disk."""
        return await self._work(instance, lambda: self._disks.kept(instance, attempt))

    async def receive(self, instance: Instance, attempt: int, files: Mapping[str, Path]) -> None:
        """Make the disks as copies of those of another attempt."""

        def work() -> None:
            self._disks.receive(instance, attempt, files)
            self._make_missing(instance, attempt, but_root=True)
            # The other attempt's may be removed from now on.
            settle_directory(self._disks.place(instance.uuid, attempt))

        await self._work(instance.uuid, work)

    async def preserve(self, instance: Instance, attempt: int, former: int) -> None:
        """Copy the ephemeral disk, if there is one."""
        await self._work(instance.uuid, lambda: self._disks.preserve(instance, attempt, former))

    async def console_output(self, instance: InstanceUuid, most: int) -> bytes:
        """Return the end of the file into which QEMU writes what the guest writes."""

        def look() -> bytes:
            _, label = self._domains.whole(instance)
            return end_of(self._disks.console(instance, label.attempt), most) if most else b""

        return await self._look(look)

    async def serial_line(self, instance: InstanceUuid) -> SerialLine:
        """Connect to the serial line of a guest that is not off."""

        def look() -> tuple[Path, str]:
            domain, label = self._domains.whole(instance)
            state = state_of(domain)
            if state not in (PowerState.RUNNING, PowerState.PAUSED):
                raise _not_running(instance, state)
            terminal = terminal_of(domain.XMLDesc())
            if terminal is None:
                raise DriverError("InstanceNotRunning", f"{instance} has no serial line")
            return self._disks.console(instance, label.attempt), terminal

        async def piece(path: Path, at: int) -> tuple[int, bytes]:
            return await self._look(lambda: piece_of(path, at))

        async def runs() -> bool:
            found = await self._look(lambda: self._domains.find(instance))
            return found is not None and await self._look(lambda: bool(found[0].isActive()))

        file, terminal = await self._look(look)
        return guarded(lambda: SerialLine(instance, file, terminal, piece, runs))

    async def vnc_line(self, instance: InstanceUuid) -> ScreenLine:
        """Connect to the screen of a guest that is not off."""

        def look() -> socket.socket:
            domain, _ = self._domains.whole(instance)
            state = state_of(domain)
            if state not in (PowerState.RUNNING, PowerState.PAUSED):
                raise _not_running(instance, state)
            return screen_of(domain, instance)

        return await connect(instance, await self._look(look))

    async def diagnostics(self, instance: InstanceUuid) -> GuestDiagnostics:
        """Return what libvirt measures of a guest that runs."""

        def look() -> GuestDiagnostics:
            domain, label = self._domains.whole(instance)
            if state_of(domain) is not PowerState.RUNNING:
                raise _not_running(instance, state_of(domain))
            return diagnostics(domain, self._options.virt_type, label.ssh_port)

        return await self._look(look)

    async def measures(self) -> Mapping[InstanceUuid, GuestMeasures]:
        """Return what the guests that run take."""
        return await self._look(lambda: measures(self._connection.get()))

    async def snapshot(self, instance: InstanceUuid, disk_format: str, file: Path) -> PowerState:
        """Copy the root disk: of a guest that is not off as it is now, while the guest goes on."""
        if disk_format not in FORMATS:
            raise DriverError("DiskFormatNotSupported", f"disk_format: {disk_format}")

        def work() -> PowerState:
            domain, label = self._domains.whole(instance)
            before = state_of(domain)
            place = self._disks.place(instance, label.attempt)
            if before in (PowerState.RUNNING, PowerState.PAUSED):
                undo_cut(domain, place)
                made = place / COPY
                root = self._disks.root_path(instance, label.attempt)
                with handed_out(made, file):
                    copy_live(domain, root, disk_format, made, still(domain, label, before, place))
            else:
                self._disks.copy_out(instance, label.attempt, disk_format, file)
            return state_of(domain)

        return await self._work(instance, work)

    async def set_password(self, instance: InstanceUuid, password: str) -> PowerState:
        """Have the agent inside a guest change the password of the administrator."""

        def work() -> PowerState:
            domain, label = self._domains.whole(instance)
            state = state_of(domain)
            if state is not PowerState.RUNNING:
                raise _not_running(instance, state)
            if not label.administrator:
                raise DriverError(
                    ABSENT, f"{instance} has no guest agent: the property hw_qemu_guest_agent of its image is not `yes`"
                )
            set_password(domain, label.administrator, password)
            return state_of(domain)

        return await self._work(instance, work)

    async def trigger_crash_dump(self, instance: InstanceUuid) -> PowerState:
        """Send a guest an interrupt that cannot be masked."""

        def work() -> PowerState:
            domain, _ = self._domains.whole(instance)
            state = state_of(domain)
            if state not in (PowerState.RUNNING, PowerState.PAUSED):
                raise _not_running(instance, state)
            domain.injectNMI(0)
            return state_of(domain)

        return await self._work(instance, work)

    async def _make(
        self,
        instance: Instance,
        attempt: int,
        resources: Resources,
        allocation: Allocation | None,
        *,
        start: bool,
        anew: bool,
    ) -> PowerState:
        """Make a guest unless it is there. `anew`: disks that need no image are made where they are missing."""

        def work() -> PowerState:
            state = self._domains.there(instance.uuid, attempt)
            if state is not None:
                return state
            if anew:
                self._make_missing(instance, attempt)
            self._plug(instance, attempt)
            self._mediated.make(instance.uuid, attempt, allocation)
            label = GuestLabel(
                instance=instance.uuid,
                attempt=attempt,
                name=instance.name,
                resources=resources,
                allocation=allocation,
            )
            return self._domains.make(instance, label, start=start)

        return await self._work(instance.uuid, work, failure="SpawnFailed")

    def _make_missing(self, instance: Instance, attempt: int, *, but_root: bool = False) -> None:
        for resource in self.plan(instance, attempt):
            if not resource.from_image and not (but_root and resource.name == DISK):
                self._make_resource(instance, attempt, resource)

    def _make_resource(self, instance: Instance, attempt: int, resource: NamedResource) -> None:
        if resource.name == INTERFACES:
            self._plug(instance, attempt)
        else:
            self._disks.make_missing(instance, attempt, resource)

    def _plug(self, instance: Instance, attempt: int) -> None:
        if self._ports is not None:
            self._ports.plug(instance, attempt, wishes(instance, self._options).queues)

    def _let_go(self, instance: InstanceUuid, attempt: int) -> None:
        """Let go of what an attempt has beside its files. Raises DriverError, libvirt.libvirtError."""
        self._volumes.let_go(instance, attempt)
        self._mediated.let_go(instance, attempt)
        if self._ports is not None:
            self._ports.let_go(instance, attempt)

    async def _work(self, instance: InstanceUuid, work: Callable[[], T], *, failure: str = "InternalError") -> T:
        """Do something with a server, after what is being done with it."""
        return await self._turns.run(instance, lambda: named(work, failure))

    async def _look(self, look: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(
            self._lookers, lambda: named(lambda: twice(look), "HypervisorUnavailable")
        )


def twice(look: Callable[[], T]) -> T:
    """Look; once more where libvirt fails inside, as when a QEMU ends that it asks what QEMU can do.

    A look changes nothing. Raises libvirt.libvirtError.
    """
    try:
        return look()
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_INTERNAL_ERROR:
            raise
        log.warning("libvirt fails and is asked again: %s", error)
        return look()


def named(work: Callable[[], T], failure: str) -> T:
    """Do something; say by name what libvirt or the disk refuses."""
    try:
        return guarded(work)
    except libvirt.libvirtError as error:
        code = error.get_error_code()
        name = "InstanceNotFound" if code == libvirt.VIR_ERR_NO_DOMAIN else failure
        raise DriverError(name, f"libvirt: {error}") from error


def _running(domain: libvirt.virDomain, instance: InstanceUuid, halted: PowerState) -> bool:
    """Tell whether a guest runs, or else is halted in this way. Raises DriverError `InstanceNotRunning`."""
    state = state_of(domain)
    if state not in (PowerState.RUNNING, halted):
        raise _not_running(instance, state)
    return state is PowerState.RUNNING


def _not_running(instance: InstanceUuid, state: PowerState) -> DriverError:
    return DriverError("InstanceNotRunning", f"{instance} is {state.name.lower()}, not running")
