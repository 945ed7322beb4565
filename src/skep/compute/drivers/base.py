"""The port to a hypervisor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

from skep.compute.drivers.contents import GuestContents
from skep.domain.host_networks import HostNetworks
from skep.domain.hosts import HostFacts as HostFacts  # noqa: PLC0414  # drivers import it from here
from skep.domain.ids import InstanceUuid
from skep.domain.instances import Instance, PowerState
from skep.domain.measures import GuestMeasures
from skep.domain.providers import Allocation
from skep.domain.questions import GuestDiagnostics
from skep.domain.resources import Resources


class Guest(msgspec.Struct, frozen=True, kw_only=True):
    """What the hypervisor knows of a guest, read from the hypervisor itself. Labelled with (instance, attempt)."""

    instance: InstanceUuid
    attempt: int
    name: str
    resources: Resources
    power_state: PowerState
    whole: bool = True
    """False for what an interrupted spawn left behind."""
    rescued: bool = False
    """It has a rescue disk in front of its own, whether it runs or not."""
    allocation: Allocation | None = None
    """The CPUs, pages and devices that it holds, as far as the driver knows."""


class NamedResource(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that is created for an attempt before its guest, such as a disk. The journal names it before its
    creation."""

    name: str
    """Unique within the attempt."""
    kind: str
    """A word of the driver's."""
    data: dict[str, str] = {}
    """What the driver needs to undo it, also after an upgrade."""
    from_image: bool = False
    """It is made from the bytes of the server's image, by `ImageDriver.prepare_from`. Where the host gets no images, a
    server whose plan has such a resource is built on another host."""
    interfaces: bool = False
    """It makes interfaces of the guest on its host. Before `spawn` the agent waits until the network service has wired
    the server's ports."""


class DriverError(Exception):
    """A driver could not do it. `error` is a name of `skep.domain.builds.ABORTING`, or any other."""

    def __init__(self, error: str, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message


class Driver(Protocol):
    """The core that every driver has. Further abilities of a driver are capabilities (`capabilities.py`), each with a
    protocol of its own below.

    Every operation may be repeated: an existing thing is checked, a missing one stays missing.
    """

    def on_change(self, told: Callable[[], None]) -> None:
        """Call `told`, in the agent's event loop, when a guest starts or stops by itself. The agent polls a driver that
        cannot notice that and never calls `told`."""

    def close(self) -> None:
        """Let go of files and connections. The guests stay."""

    async def facts(self) -> HostFacts:
        """Describe the host."""

    async def guests(self) -> tuple[Guest, ...]:
        """List all guests, whole and partial."""

    def plan(self, instance: Instance, attempt: int) -> tuple[NamedResource, ...]:
        """List what has to be made before the guest, in that order. Touches nothing and waits for nothing.

        Raises DriverError for a server that the driver cannot make.
        """

    async def prepare(self, instance: Instance, attempt: int, resource: NamedResource) -> None:
        """Create one resource of the plan; an existing one is created again or kept. Raises DriverError."""

    async def undo(self, instance: InstanceUuid, attempt: int, resource: NamedResource) -> None:
        """Remove one resource of the plan. A missing one is no error. Raises DriverError."""

    async def spawn(
        self,
        instance: Instance,
        attempt: int,
        resources: Resources,
        allocation: Allocation | None = None,
        contents: GuestContents | None = None,
    ) -> PowerState:
        """Make the guest, on the CPUs, pages and devices of its allocation, and start it with its password and files.

        Raises DriverError. `contents` stand in no log and outside the guest in no file.
        """

    async def destroy(self, instance: InstanceUuid, attempt: int | None = None) -> None:
        """Remove the guest, only that of `attempt` when it is given. Raises DriverError.

        What else bears the label and is known to the driver goes with it: a host that lost its journal knows no plan.
        """


@runtime_checkable
class ImageDriver(Protocol):
    """The capability `image`. Traits of the host (`COMPUTE_IMAGE_TYPE_RAW`, ...) name the disk formats that the driver
    boots from; a driver that names none gets images of every format."""

    async def prepare_from(self, instance: Instance, attempt: int, resource: NamedResource, image: Path) -> None:
        """Make one resource of the plan from the bytes of the server's image; one that is there is made anew or left.

        `image` is whole and as the image service describes it. Others use the file, too: the driver may read it, copy
        it or make a hard link to it, and does not change it. It may be gone once the call returned; a link stays.
        Raises DriverError.
        """


@runtime_checkable
class ConfigDriveDriver(Protocol):
    """The capability `config_drive`."""

    async def write_config_drive(self, instance: InstanceUuid, attempt: int, files: Mapping[str, bytes]) -> None:
        """Make the config drive of an attempt, in place of one that is there: a disk with the label `config-2` that
        holds these files, by their paths. The guest of the attempt is made afterwards, and has it among its disks.

        It bears the label of its attempt: it stays while the guest is put aside, and `undo` of any resource of the
        attempt and `destroy` remove it. The files hold secrets: they stand in no log, and nowhere else on the host.
        Raises DriverError.
        """


@runtime_checkable
class InterfacesOfHost(Protocol):
    """The capability `host_interfaces`, of a driver that may have it: a property of the host, not an operation."""

    @property
    def interfaces_of_host(self) -> bool:
        """Whether what was made of ports here cannot be had by another host: a network that only this host has, or
        hardware that knows the addresses. The ports of a build that goes to another host are made anew then."""
        ...


@runtime_checkable
class NetworksDriver(Protocol):
    """The capability `networks`, of a driver that may have it: by how it was configured."""

    @property
    def wants_networks(self) -> bool:
        """Whether the host brings the networks of its guests; otherwise nothing is asked and nothing told."""
        ...

    def tunnel_address(self) -> str | None:
        """Return the address by which other hosts reach this one with what its guests send them; None: by none, and
        guests on other hosts are not reached."""
        ...

    async def networks(self, wanted: HostNetworks) -> None:
        """Make the networks of the host so: with these, and without what is not among them.

        It is told what it was told before where that may have been interrupted, and now and then, so that what has died
        comes back: with nothing to do it has to be cheap. It says what is there itself: the agent remembers nothing
        over a restart. A port is named before its guest is made, and it may have none. What is
        there stays as it is while nothing is told. Calls do not overlap. Raises DriverError; then it is told again.
        """


@runtime_checkable
class PowerDriver(Protocol):
    """The capability `power`."""

    async def power_on(self, instance: InstanceUuid) -> PowerState:
        """Start a stopped guest. Raises DriverError."""

    async def power_off(self, instance: InstanceUuid) -> PowerState:
        """Stop a running guest. Raises DriverError."""

    async def reboot(self, instance: InstanceUuid, *, hard: bool) -> PowerState:
        """Restart a guest. Raises DriverError."""


@runtime_checkable
class PauseDriver(Protocol):
    """The capability `pause`."""

    async def pause(self, instance: InstanceUuid) -> PowerState:
        """Freeze a running guest in memory. Raises DriverError."""

    async def unpause(self, instance: InstanceUuid) -> PowerState:
        """Let a paused guest go on. Raises DriverError."""


@runtime_checkable
class RebuildDriver(Protocol):
    """The capability `rebuild`: another attempt takes the place of a guest, whose disks are kept until it has.

    A host may keep the disks of several attempts of a server, but never has more than one guest of it.
    """

    async def put_aside(self, instance: InstanceUuid, attempt: int) -> PowerState:
        """Stop the guest of an attempt and remove it from the hypervisor; its disks stay as they are.

        Return how the guest was before. One that is not there is no error: NOSTATE. Raises DriverError.
        """

    async def take_up(
        self,
        instance: Instance,
        attempt: int,
        resources: Resources,
        allocation: Allocation | None = None,
        *,
        start: bool,
    ) -> PowerState:
        """Make the guest of an attempt over disks that are there, kept or received, and start it if told to: with the
        resources that are given, after a resize others than before.

        One that is there already under this attempt stays as it is. Raises DriverError, `InstanceExists` where a guest
        of another attempt is in the way.
        """


@runtime_checkable
class MoveDriver(RebuildDriver, Protocol):
    """The capability `move`: the disks of a guest go to another attempt of its server, here or on another host."""

    async def kept(self, instance: InstanceUuid, attempt: int) -> Mapping[str, Path]:
        """Return the files that hold what the guest of an attempt has written, by names of the driver's own.

        The attempt is put aside. They do not change while it is put aside. Raises DriverError.
        """

    async def receive(self, instance: Instance, attempt: int, files: Mapping[str, Path]) -> None:
        """Make all resources of the plan, with the content of the files that `kept` gave for another attempt.

        They are as large as the server's flavor says, which may be another than that of the attempt which gave the
        files; no content is cut off. What is there is made anew. The files are not changed, and may be gone once the
        call returned. Raises DriverError.
        """


@runtime_checkable
class PreserveDriver(Protocol):
    """The capability `preserve`."""

    async def preserve(self, instance: Instance, attempt: int, former: int) -> None:
        """Give copies of the ephemeral disks of `former`, which is put aside, to an attempt that has no guest yet.

        The plan of the attempt has been made. Raises DriverError.
        """


@runtime_checkable
class SuspendDriver(Protocol):
    """The capability `suspend`."""

    async def suspend(self, instance: InstanceUuid) -> PowerState:
        """Store the memory of a running guest on disk and stop it. Raises DriverError."""

    async def resume(self, instance: InstanceUuid) -> PowerState:
        """Start a suspended guest where it was. Raises DriverError."""


@runtime_checkable
class RescueDriver(Protocol):
    """The capability `rescue`. `power_off` and a hard reboot end a rescue, too: after them the guest has its own disks
    only. Anything else leaves it as it is."""

    async def rescue(
        self, instance: InstanceUuid, image: Path | None = None, contents: GuestContents | None = None
    ) -> PowerState:
        """Boot a guest, running or off, from a rescue disk; its own disks come after it, unchanged.

        The disk is made from the bytes of `image` (as `ImageDriver.prepare_from` gets them); None: the host gets no
        images, and the driver takes what it has. The system on it gets the password of `contents`. A guest that is
        rescued already boots from a new rescue disk. If that fails the guest is as it was. Raises DriverError.
        """

    async def unrescue(self, instance: InstanceUuid) -> PowerState:
        """Boot a guest from its own disks again and remove the rescue disk.

        One that is not rescued is left running, or started. Raises DriverError.
        """


@runtime_checkable
class PasswordDriver(Protocol):
    """The capability `password`."""

    async def set_password(self, instance: InstanceUuid, password: str) -> PowerState:
        """Change the password of the administrator of a guest that runs; the same one may be set again.

        It stands in no log and outside the guest in no file. Return how the guest is. Raises DriverError,
        `InstanceNotRunning` for a guest that does not run.
        """


@runtime_checkable
class CrashDumpDriver(Protocol):
    """The capability `crash_dump`."""

    async def trigger_crash_dump(self, instance: InstanceUuid) -> PowerState:
        """Interrupt a guest so that its own system crashes and leaves a dump; each call does it once more.

        Return how the guest is. Raises DriverError, `InstanceNotRunning` for a guest that is off.
        """


@runtime_checkable
class ConsoleOutputDriver(Protocol):
    """The capability `console_output`."""

    async def console_output(self, instance: InstanceUuid, most: int) -> bytes:
        """Return the end of what a guest, running or not, has written to its console: at most `most` bytes.

        Raises DriverError.
        """


@runtime_checkable
class DiagnosticsDriver(Protocol):
    """The capability `diagnostics`."""

    async def diagnostics(self, instance: InstanceUuid) -> GuestDiagnostics:
        """Return what is measured of a guest that runs. Raises DriverError, `InstanceNotRunning` where it does not."""


@runtime_checkable
class MeasuringDriver(Protocol):
    """No capability, since no user asks for it: what watches the host does."""

    async def measures(self) -> Mapping[InstanceUuid, GuestMeasures]:
        """Return what is measured of all guests that run. Raises DriverError."""


@runtime_checkable
class OwingDriver(Protocol):
    """No capability: fetched images do not take the room of guests whose disks grow as they are written."""

    def bytes_owed(self, directory: Path) -> int:
        """Return how many bytes of the disk of a directory guests were promised and have not written yet; 0 where that
        is no disk of theirs. Called in a thread, whenever an image is to come. Raises OSError."""
        ...


@runtime_checkable
class SnapshotDriver(Protocol):
    """The capability `snapshot`."""

    async def snapshot(self, instance: InstanceUuid, disk_format: str, file: Path) -> PowerState:
        """Write the root disk of a guest, as it is at one moment, into a file that the agent removes later.

        `disk_format` is Glance's word for what the file has to be; the file is not there yet. The guest goes on as it
        was (running, stopped, paused or suspended), also when the call fails: return how it is. Raises DriverError.
        """


class ConsoleLine(Protocol):
    """One connection to a console of a guest: its serial line, or its screen."""

    async def read(self) -> bytes:
        """Return what the guest sent, as soon as there is some; empty when the line has ended. Raises DriverError."""

    async def write(self, data: bytes) -> None:
        """Send to the guest. Raises DriverError."""

    async def close(self) -> None:
        """Give the line back; done twice it is no error."""


SerialLine = ConsoleLine
"""Its name until 0.10.0, which drivers of other packages import."""


@runtime_checkable
class SerialConsoleDriver(Protocol):
    """The capability `serial_console`."""

    async def serial_line(self, instance: InstanceUuid) -> ConsoleLine:
        """Connect to the serial line of a guest; there may be several connections.

        Raises DriverError, `InstanceNotRunning` for a guest that is off.
        """


@runtime_checkable
class VncConsoleDriver(Protocol):
    """The capability `vnc_console`."""

    async def vnc_line(self, instance: InstanceUuid) -> ConsoleLine:
        """Connect to the screen, keyboard and pointer of a guest, by the protocol RFB (RFC 6143) without a password;
        there may be several connections.

        Raises DriverError, `InstanceNotRunning` for a guest that is off.
        """
