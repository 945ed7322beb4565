"""Networks for a run alone: what hosts with bridges make of links, addresses and rules ends with the run."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

_ENTER = """set -e
mkdir -p /run/netns
mount -t tmpfs none /run/netns
ip link set lo up
exec "$@"
"""


def start_again(arguments: Sequence[str]) -> NoReturn:
    """Become this program with other arguments, in namespaces of its own. Raises OSError."""
    command = ("unshare", "--mount", "--net", "sh", "-c", _ENTER, "sh")
    os.execvp(command[0], [*command, sys.executable, "-m", __package__, *arguments])
