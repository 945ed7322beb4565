"""The disk of the tiny guest: an ISO that BIOSes boot as a disk, too (isohybrid), and behind it a small file system for
what the guest writes; in a compressed qcow2 file."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pycdlib

from skep.compute.drivers.libvirt.tiny import initramfs, packages
from skep.domain.errors import Misconfigured

VOLUME = "SKEP-TINY"
STATE = 64 << 20
"""Where the file system begins; the program `init` knows it, too."""
STATE_KIB = 16 << 10
UUID = "5ba2d4b2-6f0e-4f43-9d4d-0b6c57f6c0de"
FILE_SYSTEM = ("-q", "-F", "-t", "ext4", "-b", "1024", "-m", "0", "-J", "size=1", "-L", "state", "-U", UUID)
SEED = f"hash_seed={UUID},root_owner=0:0"
COMMAND_LINE = "console=ttyS0 quiet loglevel=4 panic=1 mitigations=off"
BOOT = f"""\
DEFAULT tiny
PROMPT 0
TIMEOUT 0
LABEL tiny
 LINUX /VMLINUZ
 INITRD /INITRD
 APPEND {COMMAND_LINE}
"""


def make(path: Path, programs: Mapping[str, bytes] | None = None) -> None:
    """Write the image. Raises Misconfigured for what the machine lacks, OSError.

    `programs`: more of them, by their names in `/bin`, in place of those of BusyBox.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="skep-tiny-") as made:
        directory = Path(made)
        unpacked = packages.unpack(directory)
        raw, new = directory / "tiny.raw", path.with_name(f"{path.name}.new")
        _write_disk(unpacked, initramfs.make(unpacked, programs or {}), raw)
        packages.run(["mke2fs", *FILE_SYSTEM, "-E", f"offset={STATE},{SEED}", str(raw), f"{STATE_KIB}k"], directory)
        packages.run(["qemu-img", "convert", "-c", "-f", "raw", "-O", "qcow2", str(raw), str(new)], directory)
        new.replace(path)


def _write_disk(unpacked: Path, archive: bytes, path: Path) -> None:
    (kernel,) = (unpacked / "boot").glob("vmlinuz-*")
    files = {
        "ISOLINUX.BIN": (unpacked / "usr/lib/ISOLINUX/isolinux.bin").read_bytes(),
        "LDLINUX.C32": (unpacked / "usr/lib/syslinux/modules/bios/ldlinux.c32").read_bytes(),
        "ISOLINUX.CFG": BOOT.encode(),
        "VMLINUZ": kernel.read_bytes(),
        "INITRD": archive,
    }
    disk = pycdlib.PyCdlib()
    disk.new(interchange_level=3, vol_ident=VOLUME)
    try:
        for name, content in files.items():
            file = name if "." in name else f"{name}."
            disk.add_fp(io.BytesIO(content), len(content), f"/{file};1")
        disk.add_eltorito("/ISOLINUX.BIN;1", bootcatfile="/BOOT.CAT;1", boot_load_size=4, boot_info_table=True)
        disk.add_isohybrid()
        with path.open("wb") as written:
            disk.write_fp(written)
            if written.tell() > STATE:
                raise Misconfigured(f"what boots is larger than {STATE} bytes")
            written.truncate(STATE + (STATE_KIB << 10))
    finally:
        disk.close()
