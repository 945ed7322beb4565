"""A driver for Skep whose guests are processes of the host: `docs/drivers.md` explains it.

What bears an attempt is a directory `guests/INSTANCE_ATTEMPT`: `guest.json` says what the guest is, `inside.json` what
its user put into it. A guest outlives the agent; another run of the driver finds it by its process.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated
from uuid import uuid4

import msgspec
from msgspec import Meta

from skep.compute.drivers.base import DriverError, Guest, HostFacts, NamedResource
from skep.compute.drivers.contents import GuestContents
from skep.compute.drivers.registry import DriverSetup
from skep.domain.guest_keys import KeyRule, RefusedKeys
from skep.domain.ids import InstanceUuid
from skep.domain.instances import Instance, PowerState
from skep.domain.providers import Allocation
from skep.domain.resources import DISK_GB, MEMORY_MB, VCPU, Inventory, Resources

REFUSED_KEYS = RefusedKeys(properties=(KeyRule("hw_firmware_type", ("bios",)),))
"""A process has no firmware: schedulers are told."""
MARK = "SKEP_GUEST_MARK"
"""The variable by which a process is found that was not noted."""


class Options(msgspec.Struct, frozen=True):
    """The table `[compute.driver_options]`."""

    command: Annotated[tuple[str, ...], Meta(min_length=1)] = ("sleep", "infinity")
    vcpus: Annotated[int, Meta(ge=1)] = 4
    memory_mb: Annotated[int, Meta(ge=1)] = 4096
    disk_gb: Annotated[int, Meta(ge=0)] = 100


class Label(msgspec.Struct, frozen=True, kw_only=True):
    """What `guest.json` says of a guest."""

    instance: InstanceUuid
    attempt: int
    name: str
    resources: Resources
    allocation: Allocation | None = None
    whole: bool = False
    mark: str = ""
    """What its process carries in its environment. Noted before the process is started, so that it is found even if
    the agent dies before it can note the process."""
    process: tuple[int, int] | None = None
    """Number of its process, and when that began: numbers of processes come again. None: not noted."""


def make(setup: DriverSetup) -> ProcessDriver:
    """Return the driver of a host: the entry point."""
    return ProcessDriver(setup.host, setup.directory / "guests", setup.options(Options))


class ProcessDriver:
    """The core of the port, and the capability `power`."""

    def __init__(self, host: str, directory: Path, options: Options) -> None:
        self._host = host
        self._directory = directory
        self._options = options
        directory.mkdir(mode=0o700, exist_ok=True)

    def on_change(self, told: Callable[[], None]) -> None:
        """Tell nothing: processes that end by themselves are found when the agent looks."""

    def close(self) -> None:
        """Hold nothing open."""

    async def facts(self) -> HostFacts:
        """Describe the host."""
        options = self._options
        return HostFacts(
            inventory={
                VCPU: Inventory(total=options.vcpus),
                MEMORY_MB: Inventory(total=options.memory_mb),
                DISK_GB: Inventory(total=options.disk_gb),
            },
            hypervisor_type="process",
            hypervisor_version=1,
            hypervisor_hostname=self._host,
            refused_keys=REFUSED_KEYS,
        )

    async def guests(self) -> tuple[Guest, ...]:
        """List what there is, whole or not, from the files and processes themselves."""
        return tuple(_guest(label) for label in self._labels())

    def plan(self, instance: Instance, attempt: int) -> tuple[NamedResource, ...]:
        """Name the directory of the attempt, or refuse what a process cannot be."""
        if instance.image is not None and instance.image.properties.get("hw_firmware_type") == "uefi":
            raise DriverError("ImageUnacceptable", "hw_firmware_type: a process has no firmware")
        return (NamedResource(name="directory", kind="directory"),)

    async def prepare(self, instance: Instance, attempt: int, resource: NamedResource) -> None:
        """Make the directory; one that is there stays."""
        _guarded(lambda: self._path(instance.uuid, attempt).mkdir(mode=0o700, exist_ok=True))

    async def undo(self, instance: InstanceUuid, attempt: int, resource: NamedResource) -> None:
        """Remove the directory, if it was ever made."""
        path = self._path(instance, attempt)
        _guarded(lambda: shutil.rmtree(path) if path.exists() else None)

    async def spawn(
        self,
        instance: Instance,
        attempt: int,
        resources: Resources,
        allocation: Allocation | None = None,
        contents: GuestContents | None = None,
    ) -> PowerState:
        """Start the process, labelled first; what is whole already is left as it is."""
        for label in self._labels(instance.uuid):
            if label.attempt != attempt:
                raise DriverError("InstanceExists", f"{instance.uuid} is there already, by attempt {label.attempt}")
            if label.whole:
                return _guest(label).power_state
            _end(label)
        path = self._path(instance.uuid, attempt)
        label = Label(
            instance=instance.uuid, attempt=attempt, name=instance.name, resources=resources, allocation=allocation
        )
        _guarded(lambda: path.mkdir(mode=0o700, exist_ok=True))
        _write(path / "guest.json", label)
        if contents is not None:
            _write(path / "inside.json", contents)
        self._start(label)
        return PowerState.RUNNING

    async def destroy(self, instance: InstanceUuid, attempt: int | None = None) -> None:
        """End the process and remove all that bears the label; what is gone stays gone."""
        for label in self._labels(instance):
            if attempt in (None, label.attempt):
                _end(label)
                path = self._path(instance, label.attempt)
                _guarded(lambda path=path: shutil.rmtree(path))  # type: ignore[misc]

    async def power_on(self, instance: InstanceUuid) -> PowerState:
        """Start the process unless it runs."""
        label = self._whole(instance)
        if not _runs(label):
            self._start(label)
        return PowerState.RUNNING

    async def power_off(self, instance: InstanceUuid) -> PowerState:
        """End the process; the guest stays."""
        _end(self._whole(instance))
        return PowerState.SHUTDOWN

    async def reboot(self, instance: InstanceUuid, *, hard: bool) -> PowerState:
        """End the process and start another one."""
        label = self._whole(instance)
        _end(label)
        self._start(label)
        return PowerState.RUNNING

    def _whole(self, instance: InstanceUuid) -> Label:
        for label in self._labels(instance):
            if label.whole:
                return label
        raise DriverError("InstanceNotFound", f"there is no guest {instance} on {self._host}")

    def _labels(self, instance: InstanceUuid | None = None) -> Iterator[Label]:
        for path in sorted(self._directory.glob(f"{instance or '*'}_*/guest.json")):
            yield msgspec.json.decode(path.read_bytes(), type=Label)

    def _start(self, label: Label) -> None:
        """Start the process of a guest: its mark is noted first, and the process then."""
        path = self._path(label.instance, label.attempt) / "guest.json"
        label = msgspec.structs.replace(label, mark=uuid4().hex, process=None)
        _write(path, label)
        _write(path, msgspec.structs.replace(label, whole=True, process=self._started(label)))

    def _started(self, label: Label) -> tuple[int, int]:
        """Start a process that no signal to the agent reaches."""
        program = shutil.which(self._options.command[0])
        if program is None:
            raise DriverError("SpawnFailed", f"command: there is no program {self._options.command[0]}")
        environment = {"SKEP_GUEST": f"{label.instance}/{label.attempt}", MARK: label.mark}
        number = os.posix_spawn(program, self._options.command, environment, setsid=True)
        began = _began(number)
        if began is None:
            raise DriverError("SpawnFailed", f"{program} ended at once")
        return number, began

    def _path(self, instance: InstanceUuid, attempt: int) -> Path:
        return self._directory / f"{instance}_{attempt}"


def _guest(label: Label) -> Guest:
    state = PowerState.RUNNING if _runs(label) else PowerState.SHUTDOWN
    return Guest(
        instance=label.instance,
        attempt=label.attempt,
        name=label.name,
        resources=label.resources,
        power_state=state if label.whole else PowerState.NOSTATE,
        whole=label.whole,
        allocation=label.allocation,
    )


def _runs(label: Label) -> bool:
    return _process(label) is not None


def _end(label: Label) -> None:
    number = _process(label)
    if number is not None:
        os.kill(number, signal.SIGKILL)
        _reap(number, wait=True)


def _process(label: Label) -> int | None:
    """Return the process of a guest that runs, also one that was started and not noted."""
    if label.process is not None:
        return label.process[0] if _began(label.process[0]) == label.process[1] else None
    if not label.mark:
        return None
    wanted = f"{MARK}={label.mark}".encode()
    return next((number for number in _sessions() if wanted in _environment(number)), None)


def _sessions() -> Iterator[int]:
    """Return the processes that lead a session, as each guest does; its own children do not."""
    for path in Path("/proc").glob("[0-9]*"):
        number = int(path.name)
        with suppress(ProcessLookupError):
            if os.getsid(number) == number:
                yield number


def _environment(number: int) -> list[bytes]:
    """Return the variables that a process was started with; none of one that is gone, or another user's."""
    try:
        return Path(f"/proc/{number}/environ").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []


def _began(number: int) -> int | None:
    """Return when a process began, in ticks since the machine did; None when it is over."""
    _reap(number)
    try:
        words = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if words[0] == "Z" else int(words[19])


def _reap(number: int, *, wait: bool = False) -> None:
    """Take notice of the end of a process that this one started; others are not ours to wait for."""
    try:
        os.waitpid(number, 0 if wait else os.WNOHANG)
    except ChildProcessError:
        return


def _write(path: Path, value: msgspec.Struct) -> None:
    """Replace a file as a whole, so that nobody reads half of it."""

    def write() -> None:
        new = path.with_suffix(".new")
        new.write_bytes(msgspec.json.encode(value))
        new.chmod(0o600)
        new.replace(path)

    _guarded(write)


def _guarded(work: Callable[[], None]) -> None:
    """Do something with files; say by name when the disk does not."""
    try:
        work()
    except OSError as error:
        raise DriverError("StorageUnavailable", str(error)) from error
