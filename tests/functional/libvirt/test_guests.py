"""Real guests of QEMU: as whom they run, what the host sees of them, and that they outlive the agent."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from skep.compute.drivers.base import (
    ConfigDriveDriver,
    ConsoleOutputDriver,
    DiagnosticsDriver,
    Driver,
    DriverError,
    ImageDriver,
    MeasuringDriver,
    PasswordDriver,
    PowerDriver,
    SerialConsoleDriver,
    SnapshotDriver,
)
from skep.compute.drivers.libvirt.options import Options
from skep.compute.drivers.libvirt.rights import kept_rights as rights_of
from skep.contracts.eventually import eventually
from skep.domain.ids import InstanceUuid, new_uuid
from skep.domain.images import Image
from skep.domain.instances import Instance, PowerState
from skep.processes.rights import NAMES, SELINUX
from tests.support.agents import instance
from tests.support.boot_sectors import bootable
from tests.support.libvirt_hosts import PARTS, connection_in, host_directory, is_root, libvirt_driver, other_directory

pytestmark = [*PARTS, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[3]
NOBODY = 65534
"""A user who is neither the agent's nor QEMU's."""


@pytest.fixture
def server() -> Instance:
    flavor = msgspec.structs.replace(instance().flavor, memory_mb=64, vcpus=1, root_gb=0)
    return msgspec.structs.replace(
        instance(), uuid=InstanceUuid(new_uuid()), name="<a>&'\"\n\0 é", flavor=flavor, vifs=(), image=None
    )


@pytest.fixture
async def driver() -> AsyncIterator[Driver]:
    driver = libvirt_driver(host_directory())
    yield driver
    for guest in await driver.guests():
        await driver.destroy(guest.instance)
    driver.close()


@pytest.fixture
def another() -> Iterator[int]:
    """Give a process that is no guest, and has to live on."""
    with subprocess.Popen(["sleep", "600"]) as sleeper:
        try:
            yield sleeper.pid
            assert sleeper.poll() is None, "it was ended"
        finally:
            sleeper.kill()


def qemu(directory: Path, uuid: str) -> int:
    """Return the process of a guest."""
    (number,) = directory.glob(f"libvirt/run/qemu/instance-{uuid}.pid")
    return int(number.read_text())


def said(number: int) -> dict[str, str]:
    """Return what the kernel says of a process."""
    lines = Path(f"/proc/{number}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def check_qemu(number: int) -> None:
    """See that a QEMU has its own user, a filter of system calls, and no right beyond those of a user."""
    status = said(number)
    users = {int(one) for one in status["Uid"].split()}
    assert users.isdisjoint({0}) if is_root() else users == {os.getuid()}
    assert status["Seccomp"] == "2", "its system calls are filtered"
    assert status["NoNewPrivs"] == "1"
    assert int(status["CapEff"], 16) == 0
    if is_root():
        assert int(status["CapPrm"], 16) == 0


def check_confined(number: int, *, bridge: bool = False) -> None:
    """See that no thread of an agent has a right that it does not need, nor a program that it starts."""
    kept = rights_of(Options(virt_type="qemu", networks="bridge" if bridge else "user")) if is_root() else ()
    threads = list(Path(f"/proc/{number}/task").iterdir())
    assert threads
    for thread in threads:
        status = said(int(thread.name))
        for name in ("CapEff", "CapPrm", "CapBnd") if is_root() else ("CapEff", "CapPrm"):
            assert held(status[name]) <= set(kept), f"{name} of {status['Name']}"
        if is_root():
            assert status["NoNewPrivs"] == "1" or SELINUX.exists()


def readable_by_others(directory: Path) -> str:
    """Return the files below a directory that a user of the host may read who is neither the agent's nor QEMU's."""
    command = ("find", directory, "-type", "f", "-readable")
    found = subprocess.run(
        command, user=NOBODY, group=NOBODY, extra_groups=(), cwd="/", capture_output=True, text=True, check=False
    )
    return found.stdout


def held(mask: str) -> set[str]:
    """Return the rights in a set, as the kernel writes it."""
    return {name for bit, name in enumerate(NAMES) if int(mask, 16) >> bit & 1}


async def test_qemu_is_confined_and_no_other_user_reads_its_files(driver: Driver, server: Instance) -> None:
    assert isinstance(driver, ConfigDriveDriver)
    flavor = msgspec.structs.replace(server.flavor, ephemeral_gb=1, swap_mb=1)
    server = msgspec.structs.replace(server, flavor=flavor)
    await driver.write_config_drive(server.uuid, 1, {"openstack/latest/user_data": b"secret"})
    await driver.spawn(server, 1, server.flavor.resources())
    directory = host_directory()
    check_qemu(qemu(directory, server.uuid))
    place = directory / "guests" / f"{server.uuid}_1"
    for closed in (directory / "guests", place, directory / "bases"):
        assert closed.stat().st_mode & 0o007 == 0
    assert {path.name for path in place.iterdir()} == {"disk", "console.log", "ephemeral", "swap", "config.iso"}
    for path in place.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    if is_root():
        # The domain's XML and the memory of suspended guests are below, too.
        assert await asyncio.to_thread(readable_by_others, directory) == ""


TROUBLE = 'it\'s "quoted" <a>&amp; ]]> <![CDATA[ \\ $HOME %s\r\n\t\x01\0\ufffe \U0001f41d é'
"""What XML, JSON, a shell or an ISO would take for something of theirs."""


async def test_what_tenants_write_reaches_the_guest_unharmed(driver: Driver, server: Instance) -> None:
    """Their words are in the domain's XML as its label, and on the config drive as bytes."""
    from skep.compute.drivers.libvirt.drives import read_drive  # it imports what may not be installed

    assert isinstance(driver, ConfigDriveDriver)
    properties = {"hw_qemu_guest_agent": "yes", "os_admin_user": TROUBLE}
    image = Image(id=new_uuid(), disk_format="raw", properties=properties)
    server = msgspec.structs.replace(server, name=TROUBLE, metadata={TROUBLE: TROUBLE}, image=image)
    empty = host_directory() / "empty.raw"
    empty.write_bytes(bytes(1 << 20))
    assert isinstance(driver, ImageDriver)
    [disk] = driver.plan(server, 1)
    await driver.prepare_from(server, 1, disk, empty)
    empty.unlink()
    files = {"openstack/latest/user_data": TROUBLE.encode() + bytes(range(256)), "openstack/content/0000": b""}
    await driver.write_config_drive(server.uuid, 1, files)
    await driver.spawn(server, 1, server.flavor.resources())
    [guest] = await driver.guests()
    assert guest.name == TROUBLE
    assert read_drive(host_directory() / "guests" / f"{server.uuid}_1" / "config.iso") == files
    assert isinstance(driver, PasswordDriver)
    with pytest.raises(DriverError, match="no password has a NUL"):
        await driver.set_password(server.uuid, "secret")


async def test_a_guest_that_ends_by_itself_is_told_of(driver: Driver, server: Instance) -> None:
    heard = asyncio.Event()
    driver.on_change(heard.set)
    await driver.spawn(server, 1, server.flavor.resources())
    heard.clear()
    os.kill(qemu(host_directory(), server.uuid), signal.SIGKILL)

    async def off() -> bool:
        [guest] = await driver.guests()
        return guest.whole and guest.power_state is PowerState.SHUTDOWN and heard.is_set()

    await eventually(off, "the guest is off, and the agent was told")


async def test_the_console_has_what_the_guest_wrote_and_so_has_the_serial_line(
    driver: Driver, server: Instance
) -> None:
    assert isinstance(driver, ConsoleOutputDriver)
    assert isinstance(driver, SerialConsoleDriver)
    await driver.spawn(server, 1, server.flavor.resources())

    async def booted() -> bool:
        return b"No bootable device" in await driver.console_output(server.uuid, 1000)

    await eventually(booted, "the firmware has looked for a system")
    assert len(await driver.console_output(server.uuid, 5)) == 5
    line = await driver.serial_line(server.uuid)
    assert b"SeaBIOS" in await line.read(), "who connects sees what was said before"
    reading = asyncio.create_task(line.read())
    os.kill(qemu(host_directory(), server.uuid), signal.SIGKILL)
    assert await reading == b"", "the line ends with the guest"
    await line.close()


WRITES_MUCH = bytes.fromhex(
    "fa b03e e81a00"  # cli; put ">"
    "bafd03 ec a801 74fb"  # wait until something is typed
    "66b900000200 b078 e80700 6649 75f9 f4 ebfd"  # put "x" 2**17 times; stand still
    "88c4 bafd03 ec a820 74fb 88e0 baf803 ee c3"  # put: when the serial line is ready, out
)


async def test_a_guest_goes_on_writing_to_a_serial_line_that_is_open_and_not_read(
    driver: Driver, server: Instance, tmp_path: Path
) -> None:
    assert isinstance(driver, ConsoleOutputDriver)
    assert isinstance(driver, SerialConsoleDriver)
    assert isinstance(driver, ImageDriver)
    server = msgspec.structs.replace(server, image=Image(id=new_uuid(), disk_format="raw"))
    image = tmp_path / "writes.raw"
    image.write_bytes(bootable(WRITES_MUCH))
    [disk] = driver.plan(server, 1)
    await driver.prepare_from(server, 1, disk, image)
    await driver.spawn(server, 1, server.flavor.resources())

    async def shows(end: bytes, what: str) -> None:
        async def so() -> bool:
            return (await driver.console_output(server.uuid, len(end))) == end

        await eventually(so, what)

    await shows(b">", "the guest waits for a key")
    line = await driver.serial_line(server.uuid)
    await line.write(b"\r")
    await shows(b"x" * (1 << 17), "the guest has written all")
    await line.close()


@pytest.mark.parametrize(
    ("properties", "error"),
    [
        ({"os_require_quiesce": "yes"}, "InstanceAgentNotEnabled"),
        ({"os_require_quiesce": "yes", "hw_qemu_guest_agent": "yes"}, "GuestAgentUnavailable"),
    ],
)
async def test_what_needs_an_agent_is_refused_by_name_where_none_answers(
    driver: Driver, server: Instance, tmp_path: Path, properties: dict[str, str], error: str
) -> None:
    assert isinstance(driver, PasswordDriver)
    assert isinstance(driver, SnapshotDriver)
    assert isinstance(driver, ImageDriver)
    image = Image(id=new_uuid(), disk_format="raw", properties=properties)
    server = msgspec.structs.replace(server, image=image)
    empty = tmp_path / "empty.raw"
    empty.write_bytes(bytes(1 << 20))
    [disk] = driver.plan(server, 1)
    await driver.prepare_from(server, 1, disk, empty)
    await driver.spawn(server, 1, server.flavor.resources())
    for asked in (driver.set_password(server.uuid, "secret"), driver.snapshot(server.uuid, "raw", tmp_path / "copy")):
        with pytest.raises(DriverError) as raised:
            await asked
        assert raised.value.error == error
        assert "secret" not in raised.value.message
    if "hw_qemu_guest_agent" in properties:
        place = host_directory() / "guests" / f"{server.uuid}_1"
        assert (place / "agent").stat().st_mode & 0o002 == 0 or place.stat().st_mode & 0o007 == 0


async def test_a_guest_runs_from_a_whole_disk_which_is_copied_meanwhile(server: Instance, tmp_path: Path) -> None:
    driver = libvirt_driver(host_directory(), {"disks": "raw"})
    assert isinstance(driver, ImageDriver)
    assert isinstance(driver, SnapshotDriver)
    assert isinstance(driver, PowerDriver)
    image = tmp_path / "image.raw"
    image.write_bytes(b"boot" * 1000)
    server = msgspec.structs.replace(server, image=Image(id=new_uuid(), disk_format="raw"))
    try:
        [disk] = driver.plan(server, 1)
        await driver.prepare_from(server, 1, disk, image)
        await driver.spawn(server, 1, server.flavor.resources())
        place = host_directory() / "guests" / f"{server.uuid}_1"
        assert {"disk.raw", "base.raw"} <= {path.name for path in place.iterdir()}
        for copy in (tmp_path / "running", tmp_path / "off"):
            await driver.snapshot(server.uuid, "raw", copy)
            assert copy.read_bytes().startswith(b"boot" * 1000)
            await driver.power_off(server.uuid)
    finally:
        await driver.destroy(server.uuid)
        driver.close()
    assert not place.exists()


async def test_what_guests_take_is_measured_while_they_run(driver: Driver, server: Instance) -> None:
    assert isinstance(driver, MeasuringDriver)
    assert isinstance(driver, PowerDriver)
    await driver.spawn(server, 1, server.flavor.resources())

    async def reads() -> bool:
        return ((await driver.measures())[server.uuid].disk_reads or 0) > 0

    await eventually(reads, "the firmware looks at the disk")
    found = (await driver.measures())[server.uuid]
    assert found.memory_bytes == 64 << 20
    assert (found.memory_resident_bytes or 0) > 1 << 20
    assert 0 < (found.cpu_seconds or 0) < 600
    assert found.network_sent_bytes is None, "user mode counts nothing"
    await driver.power_off(server.uuid)
    assert await driver.measures() == {}


async def test_diagnostics_have_novas_names_too(driver: Driver, server: Instance) -> None:
    assert isinstance(driver, DiagnosticsDriver)
    await driver.spawn(server, 1, server.flavor.resources())
    told = await driver.diagnostics(server.uuid)
    [cpu], [disk] = told.cpus, told.disks
    assert told.raw["memory"] == 64 << 10
    assert told.raw["memory-actual"] == 64 << 10
    assert (told.raw["cpu0_time"], told.raw["vda_read"]) == (cpu.time, disk.read_bytes)
    assert {f"vda_{name}" for name in ("read_req", "write", "write_req")} < told.raw.keys()
    assert (told.memory_maximum, told.nics, told.hypervisor) == (64, (), "qemu")


async def test_a_domain_of_another_is_not_listed_and_not_touched(driver: Driver, server: Instance) -> None:

    await driver.guests()
    connection = connection_in(host_directory())
    theirs = connection.defineXML(
        f"<domain type='qemu'><name>theirs</name><uuid>{server.uuid}</uuid><memory>65536</memory>"
        "<os><type arch='x86_64' machine='pc'>hvm</type></os></domain>"
    )
    try:
        assert await driver.guests() == ()
        for call in (driver.destroy(server.uuid), driver.spawn(server, 1, server.flavor.resources())):
            with pytest.raises(DriverError) as raised:
                await call
            assert raised.value.error == "InstanceExists"
        assert theirs.name() == "theirs"
    finally:
        theirs.undefine()


def test_a_guest_outlives_an_agent_that_is_killed(server: Instance) -> None:
    """The next process finds it as it was, and can stop and remove it."""
    program = [sys.executable, "-m", "tests.support.libvirt_agent"]
    with other_directory() as directory:
        with subprocess.Popen([*program, "spawn", directory, server.uuid], cwd=ROOT, stdout=subprocess.PIPE) as agent:
            assert agent.stdout is not None
            assert agent.stdout.readline() == b"spawned\n"
            check_confined(agent.pid)
            number = qemu(directory, server.uuid)
            check_qemu(number)
            agent.kill()
        assert said(number)["State"][0] in "SR", "the guest runs on"
        found = subprocess.run([*program, "adopt", directory], cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True)
        assert found.stdout.splitlines() == [f"{server.uuid} 7 RUNNING True", "SHUTDOWN", "0"]
        assert not Path(f"/proc/{number}").exists()


def test_a_copy_of_a_disk_whose_agent_was_killed_is_ended_by_the_next_one(server: Instance) -> None:
    program = [sys.executable, "-m", "tests.support.libvirt_agent"]
    with other_directory() as directory:
        with subprocess.Popen([*program, "copy", directory, server.uuid], cwd=ROOT, stdout=subprocess.PIPE) as agent:
            assert agent.stdout is not None
            assert agent.stdout.readline() == b"copying\n"
            agent.kill()
        again = subprocess.run(
            [*program, "copy-again", directory, server.uuid], cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True
        )
        assert again.stdout.splitlines() == ["RUNNING", "0"]
        assert (directory / "image").stat().st_size > 0


@pytest.mark.parametrize("noted", ["no process", "another"])
def test_a_guest_without_its_qemu_is_off_whatever_process_libvirt_has_noted(
    server: Instance, another: int, noted: str
) -> None:
    """As after a start that was cut, and after a boot of the host. Nothing is left of the QEMU that was.

    libvirt would take the one for a guest that is being started, for ever, and end the process of the other.
    """
    program = [sys.executable, "-m", "tests.support.libvirt_agent"]
    with other_directory() as directory:
        with subprocess.Popen([*program, "spawn", directory, server.uuid], cwd=ROOT, stdout=subprocess.PIPE) as agent:
            assert agent.stdout is not None
            assert agent.stdout.readline() == b"spawned\n"
            number = qemu(directory, server.uuid)
            agent.kill()
        os.kill(number, signal.SIGKILL)
        [note] = (directory / "libvirt" / "run" / "qemu").glob("instance-*.xml")
        said = note.read_text().replace(f"pid='{number}'", f"pid='{another if noted == 'another' else 0}'")
        assert said != note.read_text()
        note.write_text(said)
        found = subprocess.run([*program, "adopt", directory], cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True)
        assert found.stdout.splitlines() == [f"{server.uuid} 7 SHUTDOWN True", "SHUTDOWN", "0"]
        assert list((directory / "libvirt" / "lib" / "qemu").glob("domain-*")) == []
