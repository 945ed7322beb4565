"""Memory that is no longer needed, given back to the system."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable


def give_back() -> None:
    """Give back what the allocator keeps of freed memory; do nothing where it cannot be asked to.

    The bodies of a snapshot lie between things that stay, so glibc would keep their pages for ever (malloc_trim(3)).
    """
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@functools.cache
def _malloc_trim() -> Callable[[int], int] | None:
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
