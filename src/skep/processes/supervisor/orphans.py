"""Ends a process when the one that started it dies, however that dies."""

from __future__ import annotations

import ctypes
import os
import signal

from skep.domain.errors import Misconfigured

PR_SET_PDEATHSIG = 1
"""Option of Linux' prctl(2): the signal that this process gets at its parent's death."""


def end_with(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel send this process `number` when `parent`, which must be its parent, dies.

    Raises Misconfigured where it is dead already, or where the kernel has no such thing.
    """
    prctl = getattr(ctypes.CDLL(None, use_errno=True), "prctl", None)
    if prctl is None or prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0) != 0:
        raise Misconfigured("this system cannot signal the death of a parent process")
    if os.getppid() != parent:
        raise Misconfigured("the parent process has ended")
