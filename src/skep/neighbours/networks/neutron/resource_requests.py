"""What ports ask of their hosts: Neutron's `resource_request`, and which providers it is told of.

A port whose QoS policy has a minimum (of bandwidth, of packets) asks for amounts of resource classes, each group from
one provider. Neutron says so in two forms: in one group without an id, or, with its extension
`port-resource-request-groups`, in several with ids. It has to be told of the provider of each, in the key `allocation`
of `binding:profile`: in the first form a UUID, in the second UUIDs by ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import structlog

from skep.domain.decoding import convert
from skep.domain.nested.reading import MOST_AMOUNT, MOST_GROUPS
from skep.domain.nested.wanted import Group, PortsWanted
from skep.neighbours.answers import NETWORKS as SERVICE
from skep.neighbours.answers import nonsense
from skep.neighbours.networks.neutron.calls import NeutronRefused
from skep.neighbours.networks.neutron.forms import NeutronPort

log = structlog.get_logger("skep.neighbours")

ALLOCATION = "allocation"
"""Key of `binding:profile` that tells Neutron which providers serve a port."""

_NAME = re.compile("[A-Z0-9_]{1,255}")


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    resources: dict[str, int]
    required: tuple[str, ...] = ()


class _AskedGroup(_Asked, frozen=True, kw_only=True):
    id: str


class _AskedGroups(msgspec.Struct, frozen=True, kw_only=True):
    request_groups: tuple[_AskedGroup, ...]
    same_subtree: tuple[str, ...] = ()


def asked_of(ports: Iterable[NeutronPort]) -> PortsWanted:
    """Return what ports ask of their host. Raises Unavailable where Neutron says what makes no sense."""
    groups: list[Group] = []
    subtrees: list[tuple[str, ...]] = []
    for port in ports:
        said = _read(port)
        mine = [_group(port, name, one) for name, one in said.items()]
        groups += [one for one in mine if one.resources]
        subtree = _subtree(port)
        if not set(subtree) <= said.keys():
            raise nonsense(SERVICE, f"port {port.id}: same_subtree names groups that are not there")
        if len(subtree) > 1:
            subtrees.append(subtree)
    if len({one.name for one in groups}) < len(groups):
        raise nonsense(SERVICE, "two groups of resource requests have one id")
    return PortsWanted(groups=tuple(groups), same_subtree=tuple(subtrees))


def with_allocation(port: NeutronPort, providers: Mapping[str, str]) -> dict[str, Any]:
    """Return the port's profile with what Neutron is told of `providers`: by groups the UUIDs of those that serve them.

    A port that asks for nothing has none. Raises NeutronRefused where it asks for a group that none of them serves, as
    one whose policy was changed since its server was asked for.
    """
    wanted = [one.name for one in asked_of([port]).groups]
    profile = without_allocation(port.profile)
    if not wanted:
        return profile
    if not all(name in providers for name in wanted):
        why = f"The resource request of port {port.id} is not the one that its server was placed by."
        raise NeutronRefused(409, "PortResourceRequestChanged", why)
    told: Any = {name: providers[name] for name in wanted} if _has_ids(port) else providers[port.id]
    return {**profile, ALLOCATION: told}


def moved_allocation(port: NeutronPort, providers: Mapping[str, str]) -> dict[str, Any]:
    """Return the same for a port that follows its server, which goes on: what no provider serves is not told of."""
    try:
        return with_allocation(port, providers)
    except NeutronRefused as error:
        log.warning("port without providers", port=port.id, error=str(error))
        return without_allocation(port.profile)


def has_allocation(port: NeutronPort) -> bool:
    """Tell whether Neutron is told of providers for a port, or has to be."""
    of_user = port.label is None or not port.label.made
    return of_user and bool(port.resource_request or ALLOCATION in (port.profile or {}))


def without_allocation(profile: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a profile that says nothing of providers."""
    return {key: value for key, value in (profile or {}).items() if key != ALLOCATION}


def _has_ids(port: NeutronPort) -> bool:
    return "request_groups" in (port.resource_request or {})


def _read(port: NeutronPort) -> dict[str, _Asked]:
    """Return the groups by name; that of the form without ids has the port's."""
    if not port.resource_request:
        return {}
    try:
        if not _has_ids(port):
            return {port.id: convert(port.resource_request, _Asked)}
        groups = convert(port.resource_request, _AskedGroups).request_groups
    except msgspec.ValidationError as error:
        raise nonsense(SERVICE, f"port {port.id}: resource_request: {error}") from error
    if len(groups) > MOST_GROUPS or len({one.id for one in groups}) < len(groups):
        raise nonsense(SERVICE, f"port {port.id}: more than {MOST_GROUPS} groups, or two with one id")
    return {one.id: one for one in groups}


def _subtree(port: NeutronPort) -> tuple[str, ...]:
    return convert(port.resource_request, _AskedGroups).same_subtree if _has_ids(port) else ()


def _group(port: NeutronPort, name: str, asked: _Asked) -> Group:
    names = (*asked.resources, *asked.required)
    amounts = asked.resources.values()
    if not all(map(_NAME.fullmatch, names)) or not all(0 <= amount <= MOST_AMOUNT for amount in amounts):
        raise nonsense(SERVICE, f"port {port.id}: resource_request: a name or an amount cannot be")
    return Group(
        name=name,
        resources=tuple(sorted((key, amount) for key, amount in asked.resources.items() if amount)),
        required=tuple(sorted(asked.required)),
        of_port=True,
    )
