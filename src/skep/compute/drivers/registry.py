"""Which drivers there are: the entry points of the group `skep.drivers`, Skep's own too.

The entry point's name is what an operator writes as `[compute] driver`; what it names is a function from `DriverSetup`
to a driver. Only the driver that is chosen is loaded.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from skep.compute.drivers.base import Driver
from skep.config.compute import ComputeSettings
from skep.domain.clock import Clock
from skep.domain.errors import Misconfigured

GROUP = "skep.drivers"

OptionsT = TypeVar("OptionsT", bound=msgspec.Struct)


@dataclass(frozen=True, kw_only=True)
class DriverSetup:
    """What a driver is made from."""

    host: str
    """Name of the host."""
    directory: Path
    """Directory of the host; it exists, and the driver may keep files of its own in it."""
    clock: Clock
    section: ComputeSettings
    """The section `[compute]` of the configuration."""

    def options(self, kind: type[OptionsT]) -> OptionsT:
        """Return the table `[compute.driver_options]` as a struct of the driver.

        Raises Misconfigured naming the key, also for a key that the struct does not have.
        """
        given = self.section.driver_options
        known = {field.encode_name for field in msgspec.structs.fields(kind)}
        unknown = sorted(given.keys() - known)
        if unknown:
            expected = f"expected one of {', '.join(sorted(known))}" if known else "the driver takes no options"
            raise Misconfigured(f"compute.driver_options.{unknown[0]}: unknown key, {expected}")
        try:
            return msgspec.convert(given, kind)
        except msgspec.ValidationError as error:
            raise Misconfigured(f"compute.driver_options: {error}") from error


Factory = Callable[[DriverSetup], Driver]


def make_driver(setup: DriverSetup) -> Driver:
    """Return the driver that the configuration names.

    Raises Misconfigured when no package brings the name, two packages do, or the driver cannot be made.
    """
    name = setup.section.driver
    factory = _factory(name, tuple(sys.path))
    try:
        return factory(setup)
    except Misconfigured:
        raise
    except Exception as error:
        raise _broken(name, error) from error


@functools.cache
def _factory(name: str, _path: tuple[str, ...]) -> Factory:
    """Return what makes drivers of this name. The packages on `_path` are read once, not for each host."""
    offered = entry_points(group=GROUP)
    found = [entry for entry in offered if entry.name == name]
    if not found:
        known = sorted({entry.name for entry in offered})
        there = f"there are {', '.join(known)}" if known else "none is installed: install Skep anew (scripts/bootstrap)"
        raise Misconfigured(f"compute.driver: no driver is called {name}; {there}")
    if len({entry.value for entry in found}) > 1:
        raise Misconfigured(
            f"compute.driver: {name} is the name of a driver in {' and in '.join(map(_package, found))}"
        )
    try:
        loaded: Any = found[0].load()
    except Exception as error:
        raise _broken(name, error) from error
    if not callable(loaded):
        raise Misconfigured(
            f"compute.driver: entry point {name} of the group {GROUP} cannot be used: it is {type(loaded).__name__}, "
            "no function that makes a driver (docs/drivers.md)"
        )
    factory: Factory = loaded
    return factory


def _broken(name: str, error: Exception) -> Misconfigured:
    return Misconfigured(
        f"compute.driver: entry point {name} of the group {GROUP} cannot be used: {type(error).__name__}: {error}"
    )


def _package(entry: EntryPoint) -> str:
    return f"{entry.dist.name if entry.dist is not None else 'a package'} ({entry.value})"
