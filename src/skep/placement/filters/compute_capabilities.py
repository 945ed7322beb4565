"""Extra specs scoped `capabilities:`, or with no scope at all: attributes of the host must satisfy them.

The driver says the attributes (`domain/host_attributes.py`), and may say more in `stats`. `capabilities:cpu_info:arch`
asks for a key inside one.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from skep.placement.filters.base import Filter
from skep.placement.filters.extra_spec_values import matches
from skep.placement.hosts.attributes import PASSING, Values, attribute
from skep.placement.hosts.columns import Mask
from skep.placement.hosts.view import HostView
from skep.placement.request import RequiredAttribute


def _passes(hosts: HostView, capabilities: tuple[RequiredAttribute, ...]) -> Mask:
    """Let through hosts with all of them. A key without a scope is anybody's where the host has no such attribute."""
    mask = hosts.all()
    for capability in capabilities:
        values = attribute(hosts, capability.path)
        satisfied = values.judge(partial(_is, capability.wanted))
        mask &= satisfied if capability.scoped else satisfied | _lacking(values)
    return mask


def _if_empty(hosts: HostView, capabilities: tuple[RequiredAttribute, ...]) -> Mask | None:
    passing = any(capability.path[0] in PASSING for capability in capabilities)
    return None if passing else _passes(hosts, capabilities)


def _is(wanted: str, value: Any) -> bool:
    return matches(value, wanted)


def _lacking(values: Values) -> Mask:
    return ~values.judge(lambda _: True)


def _stage(capabilities: tuple[RequiredAttribute, ...]) -> str:
    """Name the attributes: they come from the flavor, which the user chose."""
    wanted = ", ".join(f"{':'.join(capability.path)} {capability.wanted}" for capability in capabilities)
    return f"capabilities ({wanted})"


FILTERS = (
    Filter(
        name="ComputeCapabilitiesFilter",
        passes=lambda hosts, request: _passes(hosts, request.capabilities),
        stage=lambda request: _stage(request.capabilities),
        applies=lambda request: bool(request.capabilities),
        steady=True,
        if_empty=lambda hosts, request: _if_empty(hosts, request.capabilities),
    ),
    Filter(
        name="ComputeCapabilitiesOfAmountsFilter",
        passes=lambda hosts, request: _passes(hosts, request.capabilities_of_amounts),
        stage=lambda request: _stage(request.capabilities_of_amounts),
        applies=lambda request: bool(request.capabilities_of_amounts),
        if_empty=lambda hosts, request: _if_empty(hosts, request.capabilities_of_amounts),
    ),
)
"""The second asks for what changes with every claim, and so is asked again after each."""
