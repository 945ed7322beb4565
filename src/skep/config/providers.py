"""Nested resource providers that an operator gives to hosts: what no driver finds, such as bandwidth of a network."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from skep.config.base import Section
from skep.domain.ids import is_uuid
from skep.domain.nested.reading import MOST_AMOUNT
from skep.domain.resources import DISK_GB, MEMORY_MB, VCPU

OF_HOST = frozenset({VCPU, MEMORY_MB, DISK_GB, "PCPU"})
"""Classes that a host has as a whole: its driver says how much."""

NAME = "^[A-Z0-9_]{1,255}$"
"""What names of resource classes and traits are like."""


class ProviderInventory(Section, frozen=True, kw_only=True):
    """How much a provider has of a resource class."""

    resource_class: Annotated[str, Meta(pattern=NAME, description="The resource class")]
    total: Annotated[int, Meta(ge=1, le=MOST_AMOUNT, description="How much there is")]
    reserved: Annotated[int, Meta(ge=0, description="How much of it no server gets")] = 0
    allocation_ratio: Annotated[
        float, Meta(gt=0, description="How much is promised of each unit that is not reserved")
    ] = 1.0

    def __post_init__(self) -> None:
        """Refuses a reserve of more than there is."""
        if self.reserved > self.total:
            raise ValueError(f"reserved: {self.reserved} is more than total, {self.total}")


class HostProvider(Section, frozen=True, kw_only=True):
    """A nested resource provider of hosts."""

    name: Annotated[str, Meta(min_length=1, max_length=255, description="Its name, which no other one of a host has")]
    inventories: Annotated[
        tuple[ProviderInventory, ...],
        Meta(min_length=1, description="What it has, each class a table `[[compute.providers.inventories]]`"),
    ]
    uuid: Annotated[
        str,
        Meta(
            description="Its UUID; empty: it serves no port of a network. Of an agent or a device of Neutron's, the "
            "one that Neutron has of it"
        ),
    ] = ""
    parent: Annotated[str, Meta(description="Name of the provider that holds it; empty: the host")] = ""
    traits: Annotated[tuple[Annotated[str, Meta(pattern=NAME)], ...], Meta(description="Its traits")] = ()
    hosts: Annotated[
        str, Meta(min_length=1, description="Hosts that have it, a shell pattern: for processes of several hosts")
    ] = "*"

    def __post_init__(self) -> None:
        """Refuses a UUID that is none, and classes that are the host's."""
        if self.uuid and not is_uuid(self.uuid):
            raise ValueError(f"uuid: `{self.uuid[:80]}` is no UUID")
        classes = [one.resource_class for one in self.inventories]
        if not classes:
            raise ValueError("inventories: a provider has at least one")
        twice = sorted({one for one in classes if classes.count(one) > 1})
        if twice:
            raise ValueError(f"inventories: resource_class: {', '.join(twice)} stands there twice")
        of_host = sorted(OF_HOST.intersection(classes))
        if of_host:
            raise ValueError(f"inventories: {', '.join(of_host)} is of the host itself, as its driver says")


def check_providers(providers: Iterable[HostProvider]) -> None:
    """Refuse providers of the same hosts that cannot stand beside each other. Raises ValueError naming the field."""
    by_hosts: dict[str, dict[str, HostProvider]] = {}
    uuids: set[str] = set()
    for one in providers:
        beside = by_hosts.setdefault(one.hosts, {})
        if one.name in beside:
            raise ValueError(f"providers: name: there are two of `{one.name}`")
        if one.uuid and one.uuid.lower() in uuids:
            raise ValueError(f"providers: uuid: there are two of `{one.uuid}`")
        beside[one.name] = one
        uuids.add(one.uuid.lower())
    for beside in by_hosts.values():
        for one in beside.values():
            _check_parents(one, beside)


def _check_parents(provider: HostProvider, beside: dict[str, HostProvider]) -> None:
    above = [provider.name]
    while parent := beside[above[-1]].parent:
        if parent not in beside:
            raise ValueError(f"providers: parent: `{above[-1]}` names `{parent}`, which its hosts do not have")
        if parent in above:
            raise ValueError(f"providers: parent: `{provider.name}` is held by itself")
        above.append(parent)
