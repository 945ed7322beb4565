"""What other packages bring: one way to look up entry points, Skep's own too.

The name of an entry point is what an operator writes in the configuration. Only what is chosen is loaded: it may need
a client library that is not installed.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from skep.domain.errors import Misconfigured


@dataclass(frozen=True, kw_only=True)
class EntryPointGroup:
    """One kind of thing that packages bring."""

    name: str
    """Of the group of entry points."""
    setting: str
    """The setting or section whose value names one of them."""
    noun: str
    """What one of them is called."""
    page: str
    """The page that tells how to write one."""

    def load(self, name: str, shipped: Iterable[str] = ()) -> Any:
        """Return what the entry point `name` names. `shipped`: further names that an operator may write.

        Raises Misconfigured when no package brings the name, two packages do, or it cannot be loaded.
        """
        entry = _chosen(self, name, tuple(shipped), tuple(sys.path))
        try:
            return entry.load()
        except Exception as error:
            raise self.broken(name, error) from error

    def make(self, name: str, argument: Any) -> Any:
        """Return what the function behind the entry point `name` makes of `argument`.

        Raises Misconfigured as `load` does, and when the function fails or is none.
        """
        factory = self.load(name)
        if not callable(factory):
            raise self.broken(
                name, f"it is {type(factory).__name__}, no function that makes a {self.noun} ({self.page})"
            )
        try:
            return factory(argument)
        except Misconfigured:
            raise
        except Exception as error:
            raise self.broken(name, error) from error

    def broken(self, name: str, why: Exception | str) -> Misconfigured:
        """Return the error that says why the entry point `name` cannot be used."""
        said = f"{type(why).__name__}: {why}" if isinstance(why, Exception) else why
        return Misconfigured(f"{self.setting}: entry point {name} of the group {self.name} cannot be used: {said}")


@functools.cache
def _chosen(group: EntryPointGroup, name: str, shipped: tuple[str, ...], _path: tuple[str, ...]) -> EntryPoint:
    """Return the entry point. The packages on `_path` are read once for each name, not for each host."""
    offered = entry_points(group=group.name)
    found = [entry for entry in offered if entry.name == name]
    if not found:
        known = [*shipped, *sorted({entry.name for entry in offered})]
        there = f"there are {', '.join(known)}" if known else "none is installed: run scripts/bootstrap"
        raise Misconfigured(f"{group.setting}: there is no {group.noun} {name}; {there}")
    if len({entry.value for entry in found}) > 1:
        packages = " and in ".join(map(_package, found))
        raise Misconfigured(f"{group.setting}: {name} is the name of a {group.noun} in {packages}")
    return found[0]


def _package(entry: EntryPoint) -> str:
    return f"{entry.dist.name if entry.dist is not None else 'a package'} ({entry.value})"
