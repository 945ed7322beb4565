"""Python's collector of cycles in a process that serves: rare enough that it does not interrupt answers."""

from __future__ import annotations

import gc

YOUNG = 10_000
"""Objects that hold others, made and not yet freed, after which the collector looks at them.

A list of a hundred servers is some thousands of them, all of which go with the answer. With Python's 700 the collector
looked at them several times for each such list, and found nothing.
"""


def settle() -> None:
    """Keep what is there now out of the collector's sight: it stays as long as the process. Called once it serves."""
    _, older, oldest = gc.get_threshold()
    gc.set_threshold(YOUNG, older, oldest)
    gc.collect()
    gc.freeze()
