"""Which pools the devices of a request come from, by what their aliases mean and how near they must be."""

from __future__ import annotations

from skep.domain.nested.layout import ProviderLayout
from skep.domain.nested.room import ProviderRoom, Room
from skep.domain.nested.wanted import DeviceMatch, DeviceRequest
from skep.domain.resources import Resources

Chosen = dict[str, Resources]


def devices_near(
    room: Room, requests: tuple[DeviceRequest, ...], chosen: Chosen, cells: frozenset[int] | None
) -> Chosen | None:
    """Return `chosen` with the devices added; None where they cannot be had.

    `cells`: of the host, where the guest's NUMA cells are; None: the guest has none, so nearness does not matter.
    Devices that are only preferred near are taken from afar where too few are near.
    """
    if not requests:
        return chosen
    found = _matched(room, requests, chosen, cells, strict=True)
    if found is None and any(one.affinity == "preferred" for one in requests):
        found = _matched(room, requests, chosen, cells, strict=False)
    return found


def _matched(
    room: Room, requests: tuple[DeviceRequest, ...], chosen: Chosen, cells: frozenset[int] | None, *, strict: bool
) -> Chosen | None:
    """Give each unit that is asked for a unit of a pool, by augmenting paths (Ford and Fulkerson)."""
    pools = [pool for pool in room.providers.values() if len(pool.layout.capacity) == 1]
    left = {pool.name: pool.units - sum(chosen.get(pool.name, {}).values()) for pool in pools}
    given: dict[str, list[int]] = {pool.name: [] for pool in pools}
    usable = [
        [
            pool.name
            for pool in pools
            if suits(pool.layout, request) and _is_near(room, pool, request, cells, strict=strict)
        ]
        for request in requests
    ]

    def give(number: int, seen: set[str]) -> bool:
        for name in usable[number]:
            if name in seen:
                continue
            seen.add(name)
            if len(given[name]) < left[name]:
                given[name].append(number)
                return True
            for place, other in enumerate(given[name]):
                if other != number and give(other, seen):
                    given[name][place] = number
                    return True
        return False

    for number, request in enumerate(requests):
        for _ in range(request.count):
            if not give(number, set()):
                return None
    found = dict(chosen)
    for pool in pools:
        if given[pool.name]:
            (name,) = pool.layout.provider.inventory
            amounts = dict(found.get(pool.name, {}))
            amounts[name] = amounts.get(name, 0) + len(given[pool.name])
            found[pool.name] = amounts
    return found


def suits(pool: ProviderLayout, request: DeviceRequest) -> bool:
    """Tell whether a pool has devices that an alias means. A pool of devices has one resource class."""
    return len(pool.capacity) == 1 and any(_matches(pool, match) for match in request.matches)


def _matches(pool: ProviderLayout, match: DeviceMatch) -> bool:
    provider = pool.provider
    return (
        match.vendor_id.lower() in ("", provider.vendor_id.lower())
        and match.product_id.lower() in ("", provider.product_id.lower())
        and match.device_type in ("", provider.dev_type)
        and match.physical_network in ("", provider.physical_network)
        and (not match.resource_class or match.resource_class in provider.inventory)
        and pool.traits.issuperset(match.traits)
    )


def _is_near(
    room: Room, pool: ProviderRoom, request: DeviceRequest, cells: frozenset[int] | None, *, strict: bool
) -> bool:
    """Tell whether a pool is near enough (Nova: required, legacy with what is not known, preferred, socket)."""
    at = pool.layout.provider.numa
    if cells is None or at in cells:
        return True
    match request.affinity:
        case "required":
            return False
        case "legacy":
            return at is None
        case "preferred":
            return not strict
        case "socket":
            sockets = {room.cells[number].layout.socket for number in cells}
            return at is not None and at in room.cells and room.cells[at].layout.socket in sockets
