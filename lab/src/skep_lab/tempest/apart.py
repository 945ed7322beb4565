"""Namespaces for a run alone: what hosts with bridges make of links, addresses and rules ends with the run, and what
is to be seen by other users of the system stays in the folder of its work."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from skep.processes.supervisor.servers import OPEN_TO_OTHERS

_ENTER = """set -e
mkdir -p /run/netns "$1"
mount -t tmpfs none /run/netns
mount --bind "$0" "$1"
shift
ip link set lo up
exec "$@"
"""


def start_again(arguments: Sequence[str], work: Path) -> NoReturn:
    """Become this program with other arguments, in namespaces of its own. Raises OSError."""
    kept = work / "open"
    kept.mkdir()
    command = ("unshare", "--mount", "--net", "sh", "-c", _ENTER, str(kept), str(OPEN_TO_OTHERS))
    os.execvp(command[0], [*command, sys.executable, "-m", __package__, *arguments])
