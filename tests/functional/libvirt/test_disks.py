"""Disks that QEMU reads: of images, shared, as large as the flavor says."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import tempfile
from collections.abc import Hashable, Iterator
from pathlib import Path

import msgspec
import pytest

from skep.compute.drivers.base import DriverError, MoveDriver, NamedResource, PreserveDriver
from skep.compute.drivers.libvirt.commands import Owner, run
from skep.compute.drivers.libvirt.disk_room import RoomSettings
from skep.compute.drivers.libvirt.formats import write_qcow2
from skep.compute.drivers.libvirt.options import DiskForm, Options
from skep.compute.drivers.libvirt.properties import Wishes
from skep.domain.ids import InstanceUuid, new_uuid
from skep.domain.images import Image
from skep.domain.instances import Instance
from tests.support.agents import instance
from tests.support.libvirt_hosts import PARTS, is_root, libvirt_driver

pytestmark = [*PARTS]

GIB = 1 << 30
EPHEMERAL = NamedResource(name="ephemeral", kind="ephemeral")
SWAP = NamedResource(name="swap", kind="swap")


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="skep-", dir="/tmp") as path:
        Path(path).chmod(0o711)
        yield Path(path)


def disks_of(directory: Path, form: DiskForm):  # type: ignore[no-untyped-def]  # the class may not be importable here
    from skep.compute.drivers.libvirt.disks import GuestDisks

    user = pwd.getpwnam(Options(virt_type="qemu").user) if is_root() else None
    return GuestDisks(directory, None if user is None else Owner(user.pw_uid, user.pw_gid), form=form)


@pytest.fixture
def disks(directory: Path):  # type: ignore[no-untyped-def]
    return disks_of(directory, "overlay")


@pytest.fixture
def whole_disks(directory: Path):  # type: ignore[no-untyped-def]
    return disks_of(directory, "raw")


def server(image: Image | None, root_gb: int = 1, ephemeral_gb: int = 0, swap_mb: int = 0) -> Instance:
    flavor = msgspec.structs.replace(instance().flavor, root_gb=root_gb, ephemeral_gb=ephemeral_gb, swap_mb=swap_mb)
    return msgspec.structs.replace(instance(), uuid=InstanceUuid(new_uuid()), image=image, flavor=flavor)


def qcow2(directory: Path, size: str, *options: str) -> Path:
    path = directory / "image.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", *options, path, size], check=True)
    return path


def info(path: Path) -> dict[str, object]:
    told = subprocess.run(
        ["qemu-img", "info", "-f", "qcow2", "--output=json", path], check=True, stdout=subprocess.PIPE
    )
    found: dict[str, object] = json.loads(told.stdout)
    return found


@pytest.mark.parametrize("size", [512, GIB - 512, GIB + 512, 5 << 40, 1 << 50])
@pytest.mark.parametrize("under", [(), ("base.raw", "raw"), ("base.qcow2", "qcow2")])
def test_an_empty_disk_is_whole_to_qemu(directory: Path, size: int, under: tuple[str, ...]) -> None:
    if under:
        subprocess.run(["qemu-img", "create", "-q", "-f", under[1], directory / under[0], "1M"], check=True)
    path = directory / "disk"
    path.touch()
    write_qcow2(path, size, *under)
    subprocess.run(["qemu-img", "check", "-q", "-f", "qcow2", path], check=True)
    made, given = info(path), tuple(info(path).get(key) for key in ("backing-filename", "backing-filename-format"))
    assert (made["virtual-size"], given) == (size, under or (None, None))
    subprocess.run(["qemu-io", "-f", "qcow2", "-c", f"write -P 7 {size - 512} 512", path], check=True)
    subprocess.run(["qemu-io", "-f", "qcow2", "-c", f"read -P 7 {size - 512} 512", path], check=True)
    subprocess.run(["qemu-img", "check", "-q", "-f", "qcow2", path], check=True)


def test_a_disk_may_be_too_large(directory: Path) -> None:
    (directory / "disk").touch()
    with pytest.raises(DriverError, match="bytes at most") as raised:
        write_qcow2(directory / "disk", (1 << 50) + 1)
    assert raised.value.error == "StorageUnavailable"
    assert (directory / "disk").stat().st_size == 0


def test_images_take_of_the_disk_what_guests_use_of_them(directory: Path) -> None:
    from skep.compute.drivers.libvirt.disks import GuestDisks

    file = directory / "raw"
    file.write_bytes(b"boot" * (1 << 18))
    one, two = server(Image(id="image")), server(Image(id="other"))
    disks = disks_of(directory, "overlay")
    assert disks.taken_by_images() == 0
    disks.make_from_image(one, 1, file)
    assert disks.taken_by_images() == 1 << 20
    disks.make_from_image(server(one.image), 1, file)
    assert disks.taken_by_images() == 1 << 20
    full = GuestDisks(directory, None, room=RoomSettings(reserved=1 << 60))
    with pytest.raises(DriverError, match="servers were promised") as raised:
        full.make_from_image(two, 1, file)
    assert raised.value.error == "NoSpaceLeft"
    assert len(list((directory / "bases").iterdir())) == 1, "nothing was copied"
    assert disks.owed(directory) == pytest.approx(2 * GIB, abs=1 << 20)


@pytest.mark.parametrize("kind", ["raw", "qcow2"])
def test_servers_of_one_image_share_its_bytes(disks, directory: Path, kind: str) -> None:  # type: ignore[no-untyped-def]
    file = qcow2(directory, "100M") if kind == "qcow2" else directory / "raw"
    if kind == "raw":
        file.write_bytes(b"boot" * 1000)
    image = Image(id="image", disk_format=kind)
    places = []
    for _ in range(2):
        one = server(image)
        for _ in range(2):
            disks.make_from_image(one, 1, file)
        places.append((one, disks.place(one.uuid, 1)))
        assert info(places[-1][1] / "disk")["virtual-size"] == GIB
        assert info(places[-1][1] / "disk")["backing-filename"] == f"base.{kind}"
    (first, place), (_, other) = places
    assert (place / f"base.{kind}").stat().st_ino == (other / f"base.{kind}").stat().st_ino
    assert (place / f"base.{kind}").stat().st_mode & 0o222 == 0
    disks.remove(first.uuid, 1)
    assert (other / f"base.{kind}").exists()
    assert len(list((directory / "bases").iterdir())) == 1
    for one, _ in places:
        disks.remove(one.uuid, 1)
    assert len(list((directory / "bases").iterdir())) == 1, "it stays for the next server"


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> set[Hashable]:
    """Return what was on the disk at some time: files and directories, and how they were."""
    found: set[Hashable] = set()
    waited = os.fsync

    def wait(file: int) -> None:
        waited(file)
        found.add(state(os.fstat(file)))

    monkeypatch.setattr(os, "fsync", wait)
    return found


def state(about: os.stat_result) -> Hashable:
    """Return what changes with what is in a file or a directory."""
    return about.st_ino, about.st_size, about.st_mtime_ns


@pytest.mark.parametrize("form", ["overlay", "raw"])
def test_what_is_under_a_disk_outlives_a_loss_of_power(directory: Path, form: DiskForm, settled: set[Hashable]) -> None:
    file = directory / "raw"
    file.write_bytes(b"boot" * 1000)
    one, disks = server(Image(id="image", disk_format="raw")), disks_of(directory, form)
    disks.make_from_image(one, 1, file)
    place = disks.place(one.uuid, 1)
    written = (place / "base.raw", *place.glob("disk.raw"))
    assert {state(path.stat()) for path in written} <= settled


async def test_what_was_received_outlives_a_loss_of_power(directory: Path, settled: set[Hashable]) -> None:
    file = directory / "raw"
    file.write_bytes(b"boot" * 1000)
    driver = libvirt_driver(directory)
    assert isinstance(driver, MoveDriver)
    assert isinstance(driver, PreserveDriver)
    try:
        one = server(Image(id="image", disk_format="raw"), ephemeral_gb=1)
        disks = disks_of(directory, "overlay")
        disks.make_from_image(one, 1, file)
        disks.make_missing(one, 1, EPHEMERAL)
        flavor = msgspec.structs.replace(one.flavor, root_gb=3, ephemeral_gb=2, swap_mb=16)
        place = disks.place(one.uuid, 2)
        settled.clear()
        await driver.receive(msgspec.structs.replace(one, flavor=flavor), 2, await driver.kept(one.uuid, 1))
        made = {path.name for path in place.iterdir()}
        assert made == {"base.raw", "disk", "ephemeral", "swap"}
        assert {state(path.stat()) for path in (*place.iterdir(), place, place.parent)} <= settled
        await driver.preserve(one, 3, 2)
        kept = disks.place(one.uuid, 3)
        assert {state(path.stat()) for path in (kept / "ephemeral", kept, kept.parent)} <= settled
    finally:
        driver.close()


def test_an_image_larger_than_the_flavor_is_refused(disks, directory: Path) -> None:  # type: ignore[no-untyped-def]
    file = qcow2(directory, "2G")
    with pytest.raises(DriverError) as raised:
        disks.make_from_image(server(Image(id="image", disk_format="qcow2")), 1, file)
    assert raised.value.error == "FlavorDiskTooSmall"
    one = server(Image(id="image", disk_format="qcow2"), root_gb=0)
    disks.make_from_image(one, 1, file)
    assert info(disks.place(one.uuid, 1) / "disk")["virtual-size"] == 2 * GIB


def test_an_image_that_names_other_files_is_refused(disks, directory: Path) -> None:  # type: ignore[no-untyped-def]
    one = server(Image(id="image", disk_format="qcow2"))
    for options in (["-b", "/etc/passwd", "-F", "raw"], ["-o", f"data_file={directory}/data"]):
        with pytest.raises(DriverError) as raised:
            disks.make_from_image(one, 1, qcow2(directory, "1M", *options))
        assert raised.value.error == "ImageUnacceptable"
        assert not disks.place(one.uuid, 1).exists(), "nothing was made of it"


def test_what_is_received_grows_and_loses_nothing(disks, directory: Path) -> None:  # type: ignore[no-untyped-def]
    file = directory / "raw"
    file.write_bytes(b"boot" * 1000)
    one = server(Image(id="image", disk_format="raw"), ephemeral_gb=1)
    disks.make_from_image(one, 1, file)
    disks.make_missing(one, 1, EPHEMERAL)
    flavor = msgspec.structs.replace(one.flavor, root_gb=3, ephemeral_gb=2)
    larger = msgspec.structs.replace(one, flavor=flavor)
    disks.receive(larger, 2, disks.kept(one.uuid, 1))
    disks.remove(one.uuid, 1)
    place, out = disks.place(one.uuid, 2), directory / "out"
    assert info(place / "disk")["virtual-size"] == 3 * GIB
    assert (place / "ephemeral").stat().st_size == 2 * GIB
    disks.copy_out(one.uuid, 2, "raw", out)
    with out.open("rb") as copied:
        assert copied.read(4000) == b"boot" * 1000
    smaller = msgspec.structs.replace(one, flavor=msgspec.structs.replace(one.flavor, root_gb=1, ephemeral_gb=1))
    disks.receive(smaller, 3, disks.kept(one.uuid, 2))
    assert info(disks.place(one.uuid, 3) / "disk")["virtual-size"] == 3 * GIB, "nothing is cut off"


@pytest.mark.parametrize("kind", ["raw", "qcow2"])
def test_a_whole_disk_has_the_bytes_of_the_image_and_nothing_under_it(  # type: ignore[no-untyped-def]
    whole_disks, directory: Path, kind: str
) -> None:
    raw = directory / "raw"
    raw.write_bytes(b"boot" * 1000 + bytes(96))
    file = raw if kind == "raw" else qcow2(directory, "1M")
    if kind == "qcow2":
        subprocess.run(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, file], check=True)
    one = server(Image(id="image", disk_format=kind))
    for _ in range(2):
        whole_disks.make_from_image(one, 1, file)
    found = whole_disks.root(one.uuid, 1, Wishes(machine="pc"))
    assert (Path(found.path).name, found.format, found.backing) == ("disk.raw", "raw", None)
    disk = Path(found.path)
    with disk.open("rb") as made:
        assert made.read(4000) == b"boot" * 1000
    about = disk.stat()
    assert about.st_size == GIB
    assert about.st_blocks * 512 < 1 << 20, "what is empty takes no room"
    assert about.st_mode & 0o777 == 0o600
    assert {path.name for path in disk.parent.iterdir()} == {"disk.raw", f"base.{kind}"}
    rescue = whole_disks.make_rescue(one.uuid, 1, None)
    assert info(Path(rescue.path))["backing-filename"] == f"base.{kind}", "the image of the server is at hand"


def test_a_whole_disk_moves_grows_and_is_copied_whatever_the_target_makes(  # type: ignore[no-untyped-def]
    disks, whole_disks, directory: Path
) -> None:
    file = directory / "raw"
    file.write_bytes(b"boot" * 1000)
    one = server(Image(id="image", disk_format="raw"))
    whole_disks.make_from_image(one, 1, file)
    # A guest may write the header of another format: what its name says counts.
    header = qcow2(directory, "1M", "-b", "/etc/passwd", "-F", "raw").read_bytes()[:4096]
    with (whole_disks.place(one.uuid, 1) / "disk.raw").open("r+b") as written:
        written.write(header)
    larger = msgspec.structs.replace(one, flavor=msgspec.structs.replace(one.flavor, root_gb=2))
    disks.receive(larger, 2, disks.kept(one.uuid, 1))
    assert disks.root_path(one.uuid, 2).name == "disk.raw"
    assert disks.root_path(one.uuid, 2).stat().st_size == 2 * GIB
    disks.receive(one, 3, disks.kept(one.uuid, 2))
    assert disks.root_path(one.uuid, 3).stat().st_size == 2 * GIB, "nothing is cut off"
    out = directory / "out"
    disks.copy_out(one.uuid, 2, "raw", out)
    with out.open("rb") as copied:
        assert copied.read(4096) == header


def test_a_rescue_by_an_image_for_which_the_host_has_no_room_leaves_nothing(disks, directory: Path) -> None:  # type: ignore[no-untyped-def]
    """The header of a small file may say any size, and its guest may write all of it."""
    file = directory / "raw"
    file.write_bytes(b"boot" * 1000)
    one = server(Image(id="image", disk_format="raw"))
    disks.make_from_image(one, 1, file)
    before = {path.name for path in disks.place(one.uuid, 1).iterdir()}
    with pytest.raises(DriverError, match="there is room for") as refused:
        disks.make_rescue(one.uuid, 1, qcow2(directory, "1000T"))
    assert refused.value.error == "NoSpaceLeft"
    assert {path.name for path in disks.place(one.uuid, 1).iterdir()} == before
    disks.make_rescue(one.uuid, 1, None)
    disks.remove_rescue(one.uuid, 1)
    assert {path.name for path in disks.place(one.uuid, 1).iterdir()} == before


def test_a_copy_of_a_disk_that_fails_leaves_nothing(  # type: ignore[no-untyped-def]
    disks, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that it has filled would stay full."""
    from skep.compute.drivers.libvirt import disks as module

    one = server(None)
    disks.make_missing(one, 1, NamedResource(name="disk", kind="root"))
    before = {path.name for path in disks.place(one.uuid, 1).iterdir()}

    def full(words: tuple[str, ...], place: Path, *_more: object, **_options: object) -> None:
        (place / words[-1]).write_bytes(b"half of it")
        raise DriverError("NoSpaceLeft", "qemu-img: no space left on device")

    monkeypatch.setattr(module, "run", full)
    with pytest.raises(DriverError, match="no space left"):
        disks.copy_out(one.uuid, 1, "raw", directory / "out")
    monkeypatch.undo()
    nowhere = directory / "nowhere" / "out"
    with pytest.raises(DriverError):
        disks.copy_out(one.uuid, 1, "raw", nowhere)
    assert {path.name for path in disks.place(one.uuid, 1).iterdir()} == before


def test_a_whole_disk_without_an_image_is_empty(whole_disks) -> None:  # type: ignore[no-untyped-def]
    one = server(None)
    for _ in range(2):
        whole_disks.make_missing(one, 1, NamedResource(name="disk", kind="root"))
    path = whole_disks.root_path(one.uuid, 1)
    assert (path.name, path.stat().st_size, path.stat().st_blocks) == ("disk.raw", GIB, 0)


def test_a_received_disk_over_another_file_is_refused(disks, directory: Path) -> None:  # type: ignore[no-untyped-def]
    one = server(None)
    with pytest.raises(DriverError) as raised:
        disks.receive(one, 1, {"disk": qcow2(directory, "1M", "-b", "/etc/passwd", "-F", "raw")})
    assert raised.value.error == "InvalidDiskInfo"


def test_ephemeral_and_swap_are_ready_for_use(disks) -> None:  # type: ignore[no-untyped-def]
    one = server(None, ephemeral_gb=1, swap_mb=16)
    for resource in (EPHEMERAL, SWAP):
        for _ in range(2):
            disks.make_missing(one, 1, resource)
    place = disks.place(one.uuid, 1)
    with (place / "ephemeral").open("rb") as ephemeral, (place / "swap").open("rb") as swap:
        assert b"ephemeral0" in ephemeral.read(4096)
        assert swap.read(4096).endswith(b"SWAPSPACE2")
    assert (place / "swap").stat().st_size == 16 << 20
    disks.remove_one(one.uuid, 1, "swap")
    assert not (place / "swap").exists()
    disks.remove_one(one.uuid, 1, "disk")
    assert not place.exists()


def test_programs_have_limits_and_their_errors_are_named(directory: Path) -> None:
    limits = run(("cat", "/proc/self/limits"), directory, None, seconds=7).decode()
    assert {"Max cpu time": "7", "Max address space": str(2 << 30)}.items() <= {
        line[:26].strip(): line[26:].split()[0] for line in limits.splitlines()[1:]
    }.items()
    with pytest.raises(DriverError, match="cat /absent ended with 1"):
        run(("cat", "/absent"), directory, None)
