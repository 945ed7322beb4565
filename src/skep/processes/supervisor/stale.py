"""Ends the servers that an earlier start left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from skep.telemetry.logs import get_logger

STALE_SECONDS = 10.0
"""How long a server that an earlier start left behind may take to stop until it is killed."""

log = get_logger(__name__)


def end_stale(pid_file: Path, folder: Path) -> None:
    """End the server that an earlier start of ours left behind, if the file names one that still runs."""
    try:
        pid = int(pid_file.read_text().split()[0])
        ours = str(folder.absolute()).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (OSError, ValueError, IndexError):
        return
    if not ours:
        return
    log.warning("server of an earlier start ended", pid=pid)
    end = time.monotonic() + STALE_SECONDS
    for number in (signal.SIGINT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        while _runs(pid) and time.monotonic() < end:
            time.sleep(0.05)
        end += STALE_SECONDS


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return False
