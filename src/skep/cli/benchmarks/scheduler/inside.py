"""Hosts with NUMA cells, huge pages and devices, and requests for parts of them, as those of a telco's cloud."""

from __future__ import annotations

import random

import msgspec

from skep.domain.hosts import HostUsage
from skep.domain.request_specs import RequestSpec
from skep.simulator.inside import host_with_inside, numa_mix

_KINDS = tuple(
    host_with_inside(cores=cores, gpus=gpus, memory_mb=memory)
    for cores, gpus, memory in ((16, 0, 131_072), (16, 2, 131_072), (24, 0, 196_608), (32, 2, 262_144))
)


def report(name: str, number: int) -> HostUsage:
    """Return what a host with an inside reports that has no servers."""
    return msgspec.structs.replace(_KINDS[number % len(_KINDS)], host=name, hypervisor_hostname=name)


def parts(shapes: int, dice: random.Random) -> list[RequestSpec]:
    """Return specs that ask for pinned CPUs, huge pages, NUMA cells and devices; there are fifty."""
    mix = list(numa_mix())
    dice.shuffle(mix)
    return mix[:shapes]
