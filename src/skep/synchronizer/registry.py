"""Which backends there are: those shipped here, and those of other packages by entry point `skep.synchronizers`.

An entry point names a function from `SynchronizerSettings` to a backend that has not been opened.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points
from typing import cast

from skep.config.sections import SynchronizerSettings
from skep.domain.errors import Misconfigured
from skep.synchronizer.base import Backend

GROUP = "skep.synchronizers"
Factory = Callable[[SynchronizerSettings], Backend]

SHIPPED = {name: f"skep.synchronizer.{name}:make" for name in ("memory", "sql", "memcached", "nats")}
"""Loaded only when asked for: a backend brings the client library of its server."""


def make_backend(settings: SynchronizerSettings) -> Backend:
    """Return the configured backend, not opened yet.

    Raises Misconfigured when there is none of this name, or when it cannot be loaded or does not take its settings.
    """
    name = settings.backend
    try:
        return _factory(name)(settings)
    except Misconfigured:
        raise
    except Exception as error:
        raise Misconfigured(f"synchronizer.backend: {name!r} cannot be used: {error}") from error


def _factory(name: str) -> Factory:
    if name in SHIPPED:
        module, _, function = SHIPPED[name].partition(":")
        return cast("Factory", getattr(import_module(module), function))
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in found:
        known = ", ".join(sorted({*SHIPPED, *found}))
        raise Misconfigured(f"synchronizer.backend: there is no {name!r}; known are {known}")
    return cast("Factory", found[name].load())
