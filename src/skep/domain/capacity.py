"""How many more servers of one kind fit, and what ends it."""

from __future__ import annotations

import msgspec

from skep.domain.builds import StageCount
from skep.domain.resources import Resources


class PartRoom(msgspec.Struct, frozen=True, kw_only=True):
    """The room in one part of the cloud."""

    name: str
    """Of a zone; the UUID of a cell; the number of an aggregate."""
    servers: int
    """So many more fit."""
    hosts: int
    """Hosts on which at least one fits."""
    suitable: int
    """Hosts that hold such a server, now or when they are emptier."""


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """How many more servers fit, placed one after the other while nothing else changes."""

    servers: int
    hosts: int
    """Hosts on which at least one fits."""
    considered: int
    """Hosts that the operator has mapped."""
    stages: tuple[StageCount, ...] = ()
    """How many hosts each filter left that does not look at what is free; then those that look at it, if it were all
    free."""
    suitable: int = 0
    """Hosts that all of them left: they hold such a server, now or when they are emptier."""
    too_small: dict[str, int] = {}
    """Resource class -> hosts that have less of it than one server takes, even when empty. A host may count in
    several."""
    not_ready: int = 0
    """Hosts of which it is not known what is free; nothing is counted on them."""
    kept_free: tuple[str, ...] = ()
    """Hosts that were left out because they were to be kept free, the emptiest first. For admins only."""
    asked: Resources = {}
    """What one server takes."""
    runs_out_first: str = ""
    """What ends it on most suitable hosts, a resource class or a stage; empty where there are none."""
    limits: dict[str, int] = {}
    """Resource class, or the words for a stage -> the suitable hosts on which it is what ends it."""
    left_over: Resources = {}
    """What is free on the suitable hosts when no more fits, of the classes that are asked for."""
    sizes: dict[int, int] = {}
    """Servers that fit -> suitable hosts on which so many do; a power of two stands for all up to the next."""
    zones: tuple[PartRoom, ...] = ()
    """The most room first, as all of these."""
    cells: tuple[PartRoom, ...] = ()
    aggregates: tuple[PartRoom, ...] = ()
    not_counted: tuple[str, ...] = ()
    """Stages that may let fewer onto a host than is counted here: what they look at is not known beforehand."""
