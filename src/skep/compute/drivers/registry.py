"""Which drivers there are: the entry points of the group `skep.drivers`, Skep's own too.

The entry point's name is what an operator writes as `[compute] driver`; what it names is a function from `DriverSetup`
to a driver. Only the driver that is chosen is loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from skep.compute.drivers.base import Driver
from skep.config.compute import ComputeSettings
from skep.domain.clock import Clock
from skep.domain.decoding import convert
from skep.domain.errors import Misconfigured
from skep.entry_points import EntryPointGroup

GROUP = "skep.drivers"
DRIVERS = EntryPointGroup(name=GROUP, setting="compute.driver", noun="driver", page="docs/drivers.md")

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
    has_images: bool = False
    """Whether the host gets the bytes of images: a plan may have resources that are made from them."""
    fetched: Path | None = None
    """The directory of the images that the agent has fetched, whose bytes may be on the disk that guests have; None: it
    fetches none."""

    def options(self, kind: type[OptionsT]) -> OptionsT:
        """Return the table `[compute.driver_options]` as a struct of the driver.

        Raises Misconfigured naming the key, also for a key that the struct does not have.
        """
        return options_of(self.section, kind)


@dataclass(frozen=True)
class RootsDriver:
    """The entry point of a driver whose agent may be root and does not need all that root may do: what it names instead
    of a function. An agent in a process of its own gives up the other rights before it starts."""

    make: Callable[[DriverSetup], Driver]
    rights: Callable[[ComputeSettings], frozenset[str]]
    """Returns the rights that stay, in Linux' words without `CAP_`. Raises Misconfigured."""

    def __call__(self, setup: DriverSetup) -> Driver:
        """Return the driver. Raises Misconfigured."""
        return self.make(setup)


def options_of(section: ComputeSettings, kind: type[OptionsT]) -> OptionsT:
    """Return the table `[compute.driver_options]` as a struct of a driver. Raises Misconfigured naming the key."""
    given = section.driver_options
    known = {field.encode_name for field in msgspec.structs.fields(kind)}
    unknown = sorted(given.keys() - known)
    if unknown:
        expected = f"expected one of {', '.join(sorted(known))}" if known else "the driver has no options"
        raise Misconfigured(f"compute.driver_options.{unknown[0]}: unknown key, {expected}")
    try:
        return convert(given, kind)
    except msgspec.ValidationError as error:
        raise Misconfigured(_worded(error)) from error


def _worded(error: msgspec.ValidationError) -> str:
    """Say what is wrong with an option, its key first: `compute.driver_options.vcpus: expected int, got str`."""
    message, _, place = str(error).partition(" - at ")
    key = place.strip("`").removeprefix("$")
    return f"compute.driver_options{key}: {message[:1].lower()}{message[1:].replace('`', '')}"


def make_driver(setup: DriverSetup) -> Driver:
    """Return the driver that the configuration names.

    Raises Misconfigured when no package brings the name, two packages do, or the driver cannot be made.
    """
    driver: Driver = DRIVERS.make(setup.section.driver, setup)
    return driver


def kept_rights(section: ComputeSettings) -> frozenset[str] | None:
    """Return the rights that an agent keeps where it is root; None: its driver does not say, so it keeps all.

    Raises Misconfigured as `make_driver` does.
    """
    entry = DRIVERS.load(section.driver)
    return entry.rights(section) if isinstance(entry, RootsDriver) else None
