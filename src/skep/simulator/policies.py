"""Policies: which filters and weighers, by a short name, by one weigher's name, or from a TOML file."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import msgspec

from skep.domain.decoding import convert
from skep.domain.errors import Misconfigured
from skep.placement.registry import CONFIGURED_WEIGHERS, WEIGHERS, pipeline
from skep.placement.settings import DEFAULT_WEIGHERS, SchedulerSettings

_SHARES = ("CPUWeigher", "RAMWeigher", "DiskWeigher")

NAMED: dict[str, tuple[dict[str, float], str]] = {
    "default": (DEFAULT_WEIGHERS, "Skep's own weighers: the largest free share"),
    "stack": (DEFAULT_WEIGHERS | dict.fromkeys(_SHARES, -1.0), "the smallest free share that is enough"),
    "best-fit": ({"BestFitWeigher": 1.0}, "the fullest host first"),
    "fill": ({"FragmentationWeigher": 1.0}, "the least loss of room for the kinds that are asked for lately"),
    "lifetimes": (
        {"LifetimeWeigher": 10.0, "BestFitWeigher": 1.0},
        "of servers that tell a lifetime: hosts that are occupied anyway, of these the fullest; of others the fullest",
    ),
    "random": ({}, "no weigher: hosts in the order of a hash"),
}
"""Multipliers by weigher, and what they make of it."""


class SimulatedPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How hosts are chosen, under the name by which it was asked for."""

    name: str
    settings: SchedulerSettings


_USUAL = SchedulerSettings()


def named(name: str, base: SchedulerSettings = _USUAL) -> SimulatedPolicy:
    """Return the policy of a name: one of `NAMED`, or that of one weigher alone, as in `RAMWeigher` or `-RAMWeigher`.

    `base`: everything but the weighers. Raises Misconfigured where there is no such policy.
    """
    weigher = name.removeprefix("-")
    multipliers = NAMED[name][0] if name in NAMED else {weigher: -1.0 if name.startswith("-") else 1.0}
    settings = msgspec.structs.replace(base, weighers=dict(multipliers))
    try:
        pipeline(settings)
    except Misconfigured as error:
        if name in NAMED or f"there is no weigher {weigher};" not in str(error):
            raise  # it is there, and something is wrong with it
        raise Misconfigured(
            f"there is no policy {name}: expected {', '.join(NAMED)}, a TOML file, or one of the weighers "
            f"{', '.join((*WEIGHERS, *CONFIGURED_WEIGHERS))}"
        ) from error
    return SimulatedPolicy(name=name, settings=settings)


def of_document(name: str, document: dict[str, Any], base: SchedulerSettings = _USUAL) -> SimulatedPolicy:
    """Return the policy that a TOML document describes: keys are the fields of `SchedulerSettings`.

    `base`: what the document does not say. Weighers that `weighers` does not name do not run. Raises Misconfigured
    naming what there is not.
    """
    known = msgspec.structs.fields(SchedulerSettings)
    unknown = [key for key in document if key not in {field.name for field in known}]
    if unknown:
        names = ", ".join(field.name for field in known)
        raise Misconfigured(f"{name}: unknown key {', '.join(unknown)}; there are {names}")
    try:
        said = convert(document, SchedulerSettings)
    except msgspec.ValidationError as error:
        raise Misconfigured(f"{name}: {error}") from error
    return checked(name, msgspec.structs.replace(base, **{key: getattr(said, key) for key in document}))


def read_document(path: Path) -> dict[str, Any]:
    """Read a TOML file. Raises Misconfigured where it is none, OSError as the disk does."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Misconfigured(f"{path}: {error}") from error


def checked(name: str, settings: SchedulerSettings) -> SimulatedPolicy:
    """Return a policy once all that it names is known to exist. Raises Misconfigured."""
    try:
        pipeline(settings)
    except Misconfigured as error:
        raise Misconfigured(f"policy {name}: {str(error).removeprefix('scheduler: ')}") from error
    return SimulatedPolicy(name=name, settings=settings)
