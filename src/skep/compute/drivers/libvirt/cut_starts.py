"""What a libvirt inside an agent has left of guests whose start was cut: it is removed before libvirt is opened again.

libvirt notes a guest that starts before there is a QEMU. After a crash at that moment libvirt (9.0) takes the guest for
one that is being started, for ever: it neither looks for its QEMU nor ends it. Without the note the guest is off.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from xml.etree import ElementTree as ET

log = logging.getLogger(__name__)

NONE = "0"
"""In the note, instead of the number of the process of QEMU: it was not there yet."""
OWN = "driver.pid"
"""Names the process in which libvirt runs itself."""


def clear_cut_starts(root: Path) -> None:
    """Remove notes about guests that have no QEMU, and files of none that libvirt still knows. Raises OSError.

    `root`: of a libvirt that no process has open.
    """
    notes, files = root / "run" / "qemu", root / "lib" / "qemu"
    known, ids = {OWN}, set()
    for note in sorted(notes.glob("*.xml")):
        found = ET.parse(note).getroot()  # noqa: S314 - of libvirt
        domain = found.find("domain")
        if domain is None or found.get("pid") == NONE:
            log.warning("a guest whose start was cut is off: %s", note.stem)
            note.unlink()
        else:
            known.add(f"{note.stem}.pid")
            ids.add(domain.get("id"))
    for path in (*notes.glob("*.pid"), *notes.glob("*.xml.new")):
        if path.name not in known:
            path.unlink()
    for path in files.glob("domain-*"):
        if path.name.split("-")[1] not in ids:
            shutil.rmtree(path)
