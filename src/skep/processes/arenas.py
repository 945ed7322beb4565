"""How many heaps the C library keeps for the threads of a process."""

from __future__ import annotations

import ctypes

M_ARENA_MAX = -8
"""glibc's number of the setting (malloc.h)."""
ARENAS = 2


def keep_few_arenas() -> None:
    """Have threads share two heaps from now on, before there are any. Only glibc has the setting; others need none.

    glibc gives new threads heaps of their own, up to eight for each processor, and what is free in one serves no other.
    The driver of a host has dozens of threads that are rarely busy together, and libvirt one more for each guest.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(M_ARENA_MAX, ARENAS)
