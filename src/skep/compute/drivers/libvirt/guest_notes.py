"""What a libvirt inside an agent has noted of guests whose QEMU is not there: removed before libvirt is opened again.

The notes outlive a boot of the host, after which the number of a QEMU may be that of any process: libvirt (9.0) finds
no guest behind it and ends the process, whosever it is. And libvirt notes a guest that starts before there is a QEMU:
after a crash at that moment it takes the guest for one that is being started, for ever. Without the note the guest is
off.
"""

from __future__ import annotations

import itertools
import logging
import os
import shutil
from pathlib import Path
from xml.etree import ElementTree as ET

log = logging.getLogger(__name__)

NONE = "0"
"""In the note, instead of the number of the process of QEMU: it was not there yet."""
OWN = "driver.pid"
"""Names the process in which libvirt runs itself."""


def clear_guest_notes(root: Path) -> None:
    """Remove notes about guests that have no QEMU, and files of none that libvirt still knows. Raises OSError.

    `root`: of a libvirt that no process has open.
    """
    notes, files = root / "run" / "qemu", root / "lib" / "qemu"
    known, ids = {OWN}, set()
    for note in sorted(notes.glob("*.xml")):
        found = ET.parse(note).getroot()  # noqa: S314 - of libvirt
        domain, number = found.find("domain"), int(found.get("pid", NONE))
        if domain is None or not is_qemu_of(domain.findtext("uuid", ""), number):
            log.warning("a guest is off, its QEMU is not there: %s", note.stem)
            note.unlink()
        else:
            known.add(f"{note.stem}.pid")
            ids.add(domain.get("id"))
    for path in (*notes.glob("*.pid"), *notes.glob("*.xml.new")):
        if path.name not in known:
            path.unlink()
    for path in (*files.glob("domain-*"), *files.glob("channel/target/domain-*")):
        if path.name.split("-")[1] not in ids:
            shutil.rmtree(path)


def is_qemu_of(uuid: str, number: int) -> bool:
    """Tell whether a process is the QEMU of a guest, which runs as this user or as one whom this process may end."""
    if number <= 0:
        return False
    try:
        os.kill(number, 0)
    except (ProcessLookupError, PermissionError):
        return False
    try:
        arguments = Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0")
    except OSError:
        # It ends just now, or the kernel hides what is another user's (`hidepid`): libvirt finds out.
        return True
    return (b"-uuid", uuid.encode()) in itertools.pairwise(arguments)
