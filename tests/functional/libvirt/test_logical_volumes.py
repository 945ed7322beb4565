"""Root disks in logical volumes: LVM's commands with a twin of its programs, and LVM itself where the kernel has it."""

from __future__ import annotations

import pwd
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest

from skep.compute.drivers.base import DriverError, NamedResource
from skep.compute.drivers.libvirt import commands
from skep.compute.drivers.libvirt.commands import SHORT, Owner
from skep.compute.drivers.libvirt.logical_volumes import LogicalVolumes, device_of
from skep.compute.drivers.libvirt.options import Options
from skep.compute.drivers.libvirt.properties import Wishes
from skep.domain.ids import InstanceUuid, new_uuid
from skep.domain.images import Image
from skep.domain.instances import Instance
from tests.support.agents import instance
from tests.support.libvirt_hosts import PARTS, is_root

GIB = 1 << 30
GROUP = "skep-test"
BYTES = b"boot" * 1024
WISHES = Wishes(machine="pc")
ROOT = NamedResource(name="disk", kind="root")


class TwinOfLvm:
    """Programs that note what they are asked. A volume is a file; those that copy disks copy it really."""

    def __init__(self, directory: Path) -> None:
        self.volumes = directory / "volumes"
        self.volumes.mkdir()
        self.asked: list[tuple[str, ...]] = []
        self.copied: list[tuple[str, ...]] = []
        """What programs that copy disks were asked."""
        self.fails = ""
        """The program that fails."""

    def __call__(
        self, arguments: Sequence[str], directory: Path, owner: Owner | None, *, seconds: int = SHORT
    ) -> bytes:
        program, *words = arguments
        if program not in {"lvcreate", "lvremove", "lvs", "vgs", "blkdiscard"}:
            self.copied.append(tuple(arguments))
            here = [word.replace("host_device", "file").replace(f"/dev/{GROUP}", str(self.volumes)) for word in words]
            return commands.run([program, *here], directory, owner, seconds=seconds)
        self.asked.append(tuple(arguments))
        if program == self.fails:
            raise DriverError("NoSpaceLeft", f"{program} failed")
        return getattr(self, program)(words).encode()  # type: ignore[no-any-return]

    def lvcreate(self, words: Sequence[str]) -> str:
        size, name = (words[words.index(word) + 1] for word in ("--size", "--name"))
        with (self.volumes / name).open("xb") as made:
            made.write(b"of another guest")
            made.truncate(int(size.removesuffix("b")))
        return ""

    def lvremove(self, words: Sequence[str]) -> str:
        (self.volumes / words[-1].removeprefix(f"{GROUP}/")).unlink()
        return ""

    def lvs(self, _words: Sequence[str]) -> str:
        return "".join(f"  {path.name}\n" for path in self.volumes.iterdir())

    def vgs(self, _words: Sequence[str]) -> str:
        return f"  {5 * GIB}\n"

    def blkdiscard(self, words: Sequence[str]) -> str:
        path = self.volumes / words[-1].removeprefix(f"/dev/{GROUP}/")
        size = path.stat().st_size
        path.write_bytes(b"")
        with path.open("r+b") as file:
            file.truncate(size)
        return ""


def server(image: Image | None = None, root_gb: int = 1) -> Instance:
    flavor = msgspec.structs.replace(instance().flavor, root_gb=root_gb)
    return msgspec.structs.replace(instance(), uuid=InstanceUuid(new_uuid()), image=image, flavor=flavor)


def start_of(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(len(BYTES))


def image_file(directory: Path) -> Path:
    file = directory / "image"
    file.write_bytes(BYTES)
    return file


class TestWithATwin:
    @pytest.fixture
    def lvm(self, tmp_path: Path) -> TwinOfLvm:
        return TwinOfLvm(tmp_path)

    @pytest.fixture
    def disks(self, tmp_path: Path, lvm: TwinOfLvm, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
        pytest.importorskip("pycdlib")
        from skep.compute.drivers.libvirt import disks

        monkeypatch.setattr(disks, "run", lvm)
        return disks.GuestDisks(tmp_path, None, form="lvm", logical=LogicalVolumes(GROUP, lvm))

    @pytest.mark.needs_part("qemu-img")
    def test_a_disk_is_made_of_an_image_moved_grown_copied_and_removed(  # type: ignore[no-untyped-def]
        self, disks, tmp_path: Path, lvm: TwinOfLvm
    ) -> None:
        one = server(Image(id="image", disk_format="raw"))
        for _ in range(2):
            disks.make_from_image(one, 1, image_file(tmp_path))
        name = f"{one.uuid}_1"
        assert lvm.asked == [
            ("lvs", "--noheadings", "-o", "lv_name", GROUP),
            ("lvcreate", "--yes", "--wipesignatures", "n", "--size", f"{GIB}b", "--name", name, GROUP),
            ("blkdiscard", "--zeroout", f"/dev/{GROUP}/{name}"),
        ]
        found = disks.root(one.uuid, 1, WISHES)
        assert (found.path, found.format, found.device, found.backing) == (f"/dev/{GROUP}/{name}", "raw", True, None)
        assert start_of(lvm.volumes / name) == BYTES
        out = tmp_path / "out"
        disks.copy_out(one.uuid, 1, "raw", out)
        assert start_of(out) == BYTES
        larger = msgspec.structs.replace(one, flavor=msgspec.structs.replace(one.flavor, root_gb=2))
        disks.receive(larger, 2, disks.kept(one.uuid, 1))
        filled = [words for words in lvm.copied if words[-1].startswith(f"/dev/{GROUP}/")]
        assert [words[words.index("-t") + 1] for words in filled] == ["writeback"] * 2, "it outlives a loss of power"
        grown = lvm.volumes / f"{one.uuid}_2"
        assert start_of(grown) == BYTES
        assert grown.stat().st_size == 2 * GIB
        disks.remove(one.uuid, 1)
        assert [path.name for path in lvm.volumes.iterdir()] == [grown.name]
        disks.remove_one(one.uuid, 2, "disk")
        assert list(lvm.volumes.iterdir()) == []
        assert list((tmp_path / "guests").iterdir()) == []

    @pytest.mark.needs_part("qemu-img")
    def test_what_was_read_for_a_move_that_came_to_nothing_is_read_again(  # type: ignore[no-untyped-def]
        self, disks, tmp_path: Path, lvm: TwinOfLvm
    ) -> None:
        one = server(Image(id="image", disk_format="raw"))
        disks.make_from_image(one, 1, image_file(tmp_path))
        assert start_of(disks.kept(one.uuid, 1)["disk.raw"]) == BYTES
        disks.root(one.uuid, 1, WISHES)  # its guest is made again
        with (lvm.volumes / f"{one.uuid}_1").open("r+b") as written:
            written.write(b"later")
        assert start_of(disks.kept(one.uuid, 1)["disk.raw"]).startswith(b"later")

    def test_nothing_of_another_guest_is_in_an_empty_disk(self, disks, lvm: TwinOfLvm) -> None:  # type: ignore[no-untyped-def]
        one = server()
        for _ in range(2):
            disks.make_missing(one, 1, ROOT)
        [path] = lvm.volumes.iterdir()
        assert path.stat().st_size == GIB
        assert start_of(path) == bytes(len(BYTES))

    @pytest.mark.parametrize("program", ["lvcreate", "blkdiscard"])
    def test_what_was_cut_is_made_anew_or_removed(self, disks, lvm: TwinOfLvm, program: str) -> None:  # type: ignore[no-untyped-def]
        one, other = server(), server()
        lvm.fails = program
        for cut in (one, other):
            with pytest.raises(DriverError, match=f"{program} failed"):
                disks.make_missing(cut, 1, ROOT)
            with pytest.raises(DriverError, match="there is no disk"):
                disks.root(cut.uuid, 1, WISHES)
        lvm.fails = ""
        disks.make_missing(one, 1, ROOT)
        disks.remove_one(other.uuid, 1, "disk")
        assert [path.name for path in lvm.volumes.iterdir()] == [f"{one.uuid}_1"]

    @pytest.mark.parametrize("file", ["disk.lvm", "disk.lvm.new"])
    def test_a_volume_goes_with_its_server_though_its_name_was_not_stored(  # type: ignore[no-untyped-def]
        self, disks, lvm: TwinOfLvm, file: str
    ) -> None:
        """A full disk, or a loss of power, has left the file empty."""
        one = server()
        disks.make_missing(one, 1, ROOT)
        place = disks.place(one.uuid, 1)
        (place / "disk.lvm").rename(place / file)
        (place / file).write_bytes(b"")
        disks.remove(one.uuid, 1)
        assert list(lvm.volumes.iterdir()) == []
        assert not place.exists()

    def test_a_host_has_the_room_of_its_group(self, lvm: TwinOfLvm) -> None:
        assert LogicalVolumes(GROUP, lvm).size() == 5 * GIB
        assert lvm.asked == [("vgs", "--noheadings", "--nosuffix", "--units", "b", "-o", "vg_size", GROUP)]

    @pytest.mark.parametrize(
        "name", ["", "group", "/", "a/../b", "./sda", "../x", "a/..", "a/.", "-a/b", "a/b,file.filename=c", "a/b c"]
    )
    def test_what_is_no_name_of_a_volume_is_refused(self, name: str) -> None:
        with pytest.raises(DriverError, match="is no logical volume"):
            device_of(name)

    @pytest.mark.parametrize("options", [{"disks": "lvm"}, {"volume_group": "one"}])
    def test_a_group_is_set_with_lvm_and_only_then(self, options: dict[str, str]) -> None:
        with pytest.raises(msgspec.ValidationError, match="volume_group"):
            msgspec.convert({"virt_type": "qemu", **options}, Options)


NO_MAPPER = "device-mapper" not in Path("/proc/misc").read_text()


@pytest.mark.skipif(NO_MAPPER, reason="this kernel has no device mapper: LVM itself is not tested, in CI neither")
@pytest.mark.skipif(not is_root(), reason="only root makes logical volumes")
class TestWithLvmItself:
    pytestmark: ClassVar = [*PARTS, pytest.mark.needs_part("lvcreate"), pytest.mark.needs_part("losetup")]

    @pytest.fixture
    def group(self, tmp_path: Path) -> Iterator[str]:
        disk = tmp_path / "group"
        with disk.open("wb") as made:
            made.truncate(2 * GIB)
        loop = subprocess.run(["losetup", "--find", "--show", disk], check=True, capture_output=True, text=True)
        device = loop.stdout.strip()
        name = f"skep-{new_uuid()}"
        try:
            subprocess.run(["vgcreate", name, device], check=True)
            yield name
            subprocess.run(["vgremove", "--yes", "--force", name], check=True)
        finally:
            subprocess.run(["losetup", "--detach", device], check=True)

    def test_a_volume_has_the_image_and_goes(self, group: str) -> None:
        from skep.compute.drivers.libvirt.disks import GuestDisks

        user = pwd.getpwnam(Options(virt_type="qemu").user)
        with tempfile.TemporaryDirectory(prefix="skep-", dir="/tmp") as folder:
            directory = Path(folder)
            directory.chmod(0o711)
            volumes = LogicalVolumes(group)
            disks = GuestDisks(directory, Owner(user.pw_uid, user.pw_gid), form="lvm", logical=volumes)
            assert volumes.size() > GIB
            one = server(Image(id="image", disk_format="raw"))
            disks.make_from_image(one, 1, image_file(directory))
            device = disks.root_path(one.uuid, 1)
            assert start_of(device) == BYTES
            disks.copy_out(one.uuid, 1, "raw", directory / "out")
            assert start_of(directory / "out") == BYTES
            disks.remove(one.uuid, 1)
            assert not device.exists()
