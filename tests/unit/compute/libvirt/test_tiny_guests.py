"""What the tiny guest is made of: an archive that kernels unpack, and modules in the order in which they load."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from skep.compute.drivers.libvirt.tiny.initramfs import ArchiveEntry, archive, modules

NAMES = st.text("abc/.-", min_size=1, max_size=9)
HEADER = 110


def unpacked(data: bytes) -> Iterator[ArchiveEntry]:
    """Read an archive as Linux does (Documentation/driver-api/early-userspace/buffer-format)."""
    at = 0
    while True:
        assert at % 4 == 0
        assert data[at : at + 6] == b"070701"
        fields = [int(data[at + 6 + 8 * number : at + 14 + 8 * number], 16) for number in range(13)]
        mode, size, name_size = fields[1], fields[6], fields[11]
        name = data[at + HEADER : at + HEADER + name_size]
        assert name.endswith(b"\0")
        begin = -(-(at + HEADER + name_size) // 4) * 4
        if name == b"TRAILER!!!\0":
            return
        yield ArchiveEntry(name[:-1].decode(), mode, data[begin : begin + size])
        at = -(-(begin + size) // 4) * 4


@given(st.lists(st.builds(ArchiveEntry, NAMES, st.integers(0, 0o177777), st.binary(max_size=9))))
def test_an_archive_holds_what_was_put_in(entries: list[ArchiveEntry]) -> None:
    assert list(unpacked(archive(iter(entries)))) == entries


def test_modules_load_behind_those_that_they_need(tmp_path: Path) -> None:
    needs = {
        "virtio-rng": b"virtio",
        "virtio": b"virtio_ring",
        "virtio_ring": b"",
        "ext4": b"mbcache,jbd2",
        "unused": b"",
    }
    folder = tmp_path / "lib/modules/6.1"
    folder.mkdir(parents=True)
    for name, needed in (needs | {"mbcache": b"", "jbd2": b""}).items():
        (folder / f"{name}.ko").write_bytes(b"\0name=x\0depends=" + needed + b"\0")
    order = [path.stem for path in modules(tmp_path)]
    assert order == ["virtio_ring", "virtio", "virtio-rng", "mbcache", "jbd2", "ext4"]
