"""The file system of the tiny guest, which the kernel unpacks into memory: an archive of cpio, form `newc`."""

from __future__ import annotations

import gzip
import importlib.resources
import re
import subprocess
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path

import msgspec

from skep.domain.errors import Misconfigured

MODULES = (
    *("virtio_pci", "virtio_blk", "virtio_net", "virtio_rng", "virtio_balloon", "virtio_scsi"),
    "virtio_console",
    *(
        "ata_piix",
        "sd_mod",
        "sr_mod",
        "isofs",
        "nls_utf8",
        "vfat",
        "nls_cp437",
        "nls_ascii",
        "loop",
        "ext4",
        "button",
        "evdev",
    ),
)
"""Of the kernel, those of disks, networks and file systems that guests have; one that is not there is built in."""
LIBRARIES = ("lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu")
LOADER = "lib64/ld-linux-x86-64.so.2"
PROGRAMS = {"bin/dropbear": "usr/sbin/dropbear", "bin/qemu-ga": "usr/sbin/qemu-ga"}
"""Where programs that need libraries are in the guest, and among the packages."""
DIRECTORIES = (
    *("bin", "dev", "etc/acpi/PWRF", "etc/dropbear", "lib/modules", "lib64", "lib/x86_64-linux-gnu"),
    *("mnt/drive", "proc", "root/.ssh", "run", "state", "sys", "tmp", "usr/share/udhcpc", "var/log"),
)
OURS = {
    "init": "init",
    "address": "usr/share/udhcpc/default.script",
    "freeze-hook": "bin/freeze-hook",
    "password": "bin/chpasswd",
    "power-button": "etc/acpi/PWRF/00000080",
}
"""Scripts beside this module, and where they are in the guest."""
TEXTS = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\n",
    "etc/shadow": "root:*:::::::\n",
    "etc/group": "root:x:0:\ntty:x:5:\n",
    "etc/shells": "/bin/sh\n",
}
_DEPENDS = re.compile(rb"\0depends=([^\0]*)\0")
_LIBRARY = re.compile(r"=> (\S+) \(")


class ArchiveEntry(msgspec.Struct, frozen=True):
    """A file, directory or link of an archive."""

    path: str
    mode: int
    content: bytes = b""


def make(unpacked: Path, programs: Mapping[str, bytes]) -> bytes:
    """Return the archive, compressed; the same packages make the same bytes. Raises Misconfigured, OSError."""
    more = (ArchiveEntry(f"bin/{name}", 0o100755, content) for name, content in sorted(programs.items()))
    return gzip.compress(archive(chain(_entries(unpacked), more)), mtime=0)


def archive(entries: Iterator[ArchiveEntry]) -> bytes:
    """Return an archive of all entries, in their order, as of root and without times."""
    made = bytearray()
    for number, entry in enumerate(entries, 1):
        _append(made, number, entry)
    _append(made, 0, ArchiveEntry("TRAILER!!!", 0))
    return bytes(made)


def _append(made: bytearray, number: int, entry: ArchiveEntry) -> None:
    name = entry.path.encode() + b"\0"
    # Inode, mode, owner, group, links, time, size, four numbers of devices, length of the name, checksum.
    fields = (number, entry.mode, 0, 0, 1, 0, len(entry.content), 0, 0, 0, 0, len(name), 0)
    made += b"070701" + b"".join(b"%08X" % field for field in fields) + name
    made += bytes(-len(made) % 4)
    made += entry.content
    made += bytes(-len(made) % 4)


def _entries(unpacked: Path) -> Iterator[ArchiveEntry]:
    parents = {str(parent) for path in DIRECTORIES for parent in (Path(path), *Path(path).parents)} - {"."}
    for path in sorted(parents):
        yield ArchiveEntry(path, 0o040700 if path.startswith("root") else 0o040755)
    yield _program("bin/busybox", unpacked / "bin/busybox")
    yield ArchiveEntry("bin/sh", 0o120777, b"busybox")
    for path, file in PROGRAMS.items():
        yield _program(path, unpacked / file)
    yield _program(LOADER, (unpacked / LOADER).resolve())
    for library in _libraries(unpacked):
        yield _program(f"lib/x86_64-linux-gnu/{library.name}", library.resolve())
    order = list(modules(unpacked))
    for module in order:
        yield ArchiveEntry(f"lib/modules/{module.name}", 0o100644, module.read_bytes())
    yield ArchiveEntry("lib/modules/order", 0o100644, "".join(f"{one.name}\n" for one in order).encode())
    for path, text in sorted(TEXTS.items()):
        yield ArchiveEntry(path, 0o100644, text.encode())
    ours = importlib.resources.files(__package__)
    for name, path in OURS.items():
        yield ArchiveEntry(path, 0o100755, (ours / name).read_bytes())


def _program(path: str, file: Path) -> ArchiveEntry:
    return ArchiveEntry(path, 0o100755, file.read_bytes())


def _libraries(unpacked: Path) -> list[Path]:
    """Return the libraries of all programs, as the loader of the packages finds them among the packages."""
    return sorted({library for program in PROGRAMS.values() for library in _libraries_of(unpacked, program)})


def _libraries_of(unpacked: Path, program: str) -> list[Path]:
    places = ":".join(str(unpacked / one) for one in LIBRARIES)
    asked = [str(unpacked / LOADER), "--library-path", places, "--list", str(unpacked / program)]
    done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=60)  # noqa: S603 - of Debian
    found = [Path(path) for path in _LIBRARY.findall(done.stdout)]
    strange = [str(path) for path in found if not path.is_relative_to(unpacked)]
    if done.returncode or strange or not found:
        raise Misconfigured(f"the packages lack libraries of {program}: {', '.join(strange) or done.stderr.strip()}")
    return found


def modules(unpacked: Path) -> Iterator[Path]:
    """Yield the modules, each behind those that it needs, as it says itself."""
    there = {path.stem.replace("-", "_"): path for path in sorted((unpacked / "lib/modules").rglob("*.ko"))}
    if not there:
        raise Misconfigured("the kernel's package has no modules that are not compressed")
    seen: set[str] = set()

    def with_needed(name: str) -> Iterator[Path]:
        name = name.replace("-", "_")
        if name in seen or name not in there:
            return
        seen.add(name)
        said = _DEPENDS.search(there[name].read_bytes())
        for needed in said.group(1).decode().split(",") if said else ():
            yield from with_needed(needed)
        yield there[name]

    for module in MODULES:
        yield from with_needed(module)
