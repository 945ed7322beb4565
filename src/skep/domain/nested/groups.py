"""Which providers the groups of a request get: a numbered group all of its resources from one, with its traits."""

from __future__ import annotations

from collections.abc import Iterator

from skep.domain.nested.room import HOST, ProviderRoom, Room
from skep.domain.nested.wanted import Group, Wanted
from skep.domain.resources import Resources

Chosen = dict[str, Resources]
"""Amounts by nested provider."""
Served = dict[str, str]
"""By the groups that ports ask for, the name of the nested provider that serves each."""

MOST_STEPS = 10_000
"""Providers that are tried for groups before a host counts as one on which the request does not fit."""


def group_choices(room: Room, asked: Wanted) -> Iterator[tuple[Chosen, Served]]:
    """Give each way in which groups and unnumbered classes can be served, and which provider serves ports.

    Which of several providers that are alike is taken makes no difference, so one of them is tried.
    """
    loose = [_loose(item) for item in asked.loose if item[0] not in room.layout.classes]
    yield from _served(room, (*asked.all_groups, *loose), asked, ({}, {}), frozenset(), iter(range(MOST_STEPS)))


def _loose(item: tuple[str, int]) -> Group:
    return Group(name="", resources=(item,))


def _served(
    room: Room,
    groups: tuple[Group, ...],
    asked: Wanted,
    way: tuple[Chosen, Served],
    isolated: frozenset[str],
    steps: Iterator[int],
) -> Iterator[tuple[Chosen, Served]]:
    chosen, served = way
    if not groups:
        if all(_in_one_subtree(room, served, names) for names in asked.ports.same_subtree):
            yield way
        return
    if next(steps, None) is None:
        return
    group, rest = groups[0], groups[1:]
    alone = asked.isolated and group.name != ""
    if _host_serves(room, group) and not (alone and HOST in isolated):
        yield from _served(room, rest, asked, way, isolated | {HOST} if alone else isolated, steps)
    tried = set()
    for provider in room.providers.values():
        name = provider.name
        if (alone and name in isolated) or not _serves(provider, group, chosen.get(name, {})):
            continue
        alike = (
            provider.layout.provider.numa,
            provider.layout.traits,
            provider.key(),
            name if asked.ports.same_subtree else "",
            *_bound(provider),
            *_taken(chosen, name),
        )
        if alike in tried and name not in isolated:
            continue
        if name not in isolated:
            tried.add(alike)
        amounts = dict(chosen.get(name, {}))
        for wanted, amount in group.resources:
            amounts[wanted] = amounts.get(wanted, 0) + amount
        after = {**chosen, name: amounts}, {**served, group.name: name} if group.of_port else served
        yield from _served(room, rest, asked, after, isolated | {name} if alone else isolated, steps)


def _bound(provider: ProviderRoom) -> tuple[object, ...]:
    one = provider.layout.provider
    return (bool(one.uuid), one.numa, one.vendor_id, one.product_id, one.dev_type, one.physical_network, *one.inventory)


def _taken(chosen: Chosen, name: str) -> tuple[object, ...]:
    return tuple(sorted(chosen.get(name, {}).items()))


def _host_serves(room: Room, group: Group) -> bool:
    """Tell whether the host itself has the classes and traits; how much of them is free the flat inventory says."""
    has_all = not group.of_port and all(name in room.layout.classes for name, _ in group.resources)
    return has_all and _suits(room.layout.traits, group)


def _serves(provider: ProviderRoom, group: Group, taken: Resources) -> bool:
    if group.of_port and not provider.layout.provider.uuid:
        return False
    return all(
        provider.free.get(name, 0) - taken.get(name, 0) >= amount for name, amount in group.resources
    ) and _suits(provider.layout.traits, group)


def _suits(traits: frozenset[str], group: Group) -> bool:
    return (
        traits.issuperset(group.required)
        and traits.isdisjoint(group.forbidden)
        and all(not traits.isdisjoint(choice) for choice in group.any_of)
    )


def _in_one_subtree(room: Room, served: Served, names: tuple[str, ...]) -> bool:
    """Tell whether of the providers that serve these groups one holds all the others (Placement's `same_subtree`)."""
    of_groups = {served[name] for name in names if name in served}
    return not of_groups or any(all(root in _upwards(room, one) for one in of_groups) for root in of_groups)


def _upwards(room: Room, name: str) -> set[str]:
    """Return a provider and all that hold it."""
    found: set[str] = set()
    while name in room.providers and name not in found:
        found.add(name)
        name = room.providers[name].layout.provider.parent
    return found
