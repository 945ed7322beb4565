"""Policies: which filters and weighers, by a short name, by one weigher's name, or from a TOML file."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import msgspec

from skep.domain.errors import Misconfigured
from skep.scheduler.registry import pipeline
from skep.scheduler.settings import DEFAULT_WEIGHERS, SchedulerSettings

_SHARES = ("CPUWeigher", "RAMWeigher", "DiskWeigher")

NAMED: dict[str, tuple[dict[str, float], str]] = {
    "default": (DEFAULT_WEIGHERS, "Skep's own weighers: the largest free share"),
    "stack": (DEFAULT_WEIGHERS | dict.fromkeys(_SHARES, -1.0), "the smallest free share that is enough"),
    "best-fit": ({"BestFitWeigher": 1.0}, "the fullest host first"),
    "fill": ({"FragmentationWeigher": 1.0}, "the least loss of room for the kinds that are asked for lately"),
    "random": ({}, "no weigher: hosts in the order of a hash"),
}
"""Multipliers by weigher, and what they make of it."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """How hosts are chosen, under the name by which it was asked for."""

    name: str
    settings: SchedulerSettings


def named(name: str) -> Policy:
    """Return the policy of a name: one of `NAMED`, or that of one weigher alone, as in `RAMWeigher` or `-RAMWeigher`.

    Raises Misconfigured where there is no such policy.
    """
    if name in NAMED:
        return checked(name, SchedulerSettings(weighers=dict(NAMED[name][0])))
    weigher = name.removeprefix("-")
    settings = SchedulerSettings(weighers={weigher: -1.0 if name.startswith("-") else 1.0})
    try:
        return checked(name, settings)
    except Misconfigured as error:
        raise Misconfigured(
            f"no policy is called {name}; there are {', '.join(NAMED)}, and weighers: {error}"
        ) from error


def of_document(name: str, document: dict[str, Any]) -> Policy:
    """Return the policy that a TOML document describes: keys are the fields of `SchedulerSettings`.

    Weighers that `weighers` does not name do not run. Raises Misconfigured naming what there is not.
    """
    known = msgspec.structs.fields(SchedulerSettings)
    unknown = [key for key in document if key not in {field.name for field in known}]
    if unknown:
        names = ", ".join(field.name for field in known)
        raise Misconfigured(f"{name}: unknown key {', '.join(unknown)}; there are {names}")
    try:
        return checked(name, msgspec.convert(document, SchedulerSettings))
    except msgspec.ValidationError as error:
        raise Misconfigured(f"{name}: {error}") from error


def read_document(path: Path) -> dict[str, Any]:
    """Read a TOML file. Raises Misconfigured where it is none, OSError as the disk does."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Misconfigured(f"{path}: {error}") from error


def checked(name: str, settings: SchedulerSettings) -> Policy:
    """Return a policy once all that it names is known to exist. Raises Misconfigured."""
    pipeline(settings)
    return Policy(name=name, settings=settings)
