"""Which backends there are: entry points of the group `skep.synchronizers`, those of Skep and of other packages.

An entry point names a function from `SynchronizerSettings` to a backend that has not been opened. Only what is
configured is loaded: a backend brings the client library of its server.
"""

from __future__ import annotations

from skep.config.sections import SynchronizerSettings
from skep.entry_points import EntryPointGroup
from skep.synchronizer.base import Backend

GROUP = "skep.synchronizers"
BACKENDS = EntryPointGroup(name=GROUP, setting="synchronizer.backend", noun="backend", page="docs/synchronizer.md")


def make_backend(settings: SynchronizerSettings) -> Backend:
    """Return the configured backend, not opened yet.

    Raises Misconfigured when no package brings the name, two packages do, or the backend does not take its settings.
    """
    backend: Backend = BACKENDS.make(settings.backend, settings)
    return backend
