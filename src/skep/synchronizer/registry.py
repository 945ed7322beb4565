"""Which backends there are: entry points of the group `skep.synchronizers`, those of Skep and of other packages.

An entry point names a function from `SynchronizerSettings` to a backend that has not been opened. Only what is
configured is loaded: a backend brings the client library of its server.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from skep.config.sections import SynchronizerSettings
from skep.domain.errors import Misconfigured
from skep.synchronizer.base import Backend

GROUP = "skep.synchronizers"
Factory = Callable[[SynchronizerSettings], Backend]


def make_backend(settings: SynchronizerSettings) -> Backend:
    """Return the configured backend, not opened yet.

    Raises Misconfigured when there is none of this name or more than one, or when it cannot be loaded or does not take
    its settings.
    """
    name = settings.backend
    try:
        return _factory(name)(settings)
    except Misconfigured:
        raise
    except Exception as error:
        raise Misconfigured(f"synchronizer.backend: {name!r} cannot be used: {error}") from error


def _factory(name: str) -> Factory:
    found = entry_points(group=GROUP)
    named = [entry for entry in found if entry.name == name]
    if not named:
        known = sorted({entry.name for entry in found})
        there = f"known are {', '.join(known)}" if known else "none is installed: install Skep anew (scripts/bootstrap)"
        raise Misconfigured(f"synchronizer.backend: there is no {name!r}; {there}")
    if len({entry.value for entry in named}) > 1:
        raise Misconfigured(f"synchronizer.backend: {name!r} is in {' and in '.join(map(_package, named))}")
    return cast("Factory", named[0].load())


def _package(entry: EntryPoint) -> str:
    return f"{entry.dist.name if entry.dist is not None else 'a package'} ({entry.value})"
