"""Addresses of ports: no address of a subnet is given to two of them.

The search for a free address goes on behind the last one that was given and comes round, so that an address rests
before it is given again, and a subnet that is nearly empty costs one statement. In a crowded one the addresses of a
range are counted, and those of its halves: a full subnet costs one count for each of its pools, and a free address
among n that are given is found by counts of its surroundings, about 2n rows of an index in all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from skep.database.api.network_rows import Condition, portions
from skep.database.api.network_tables import port_addresses, ports, subnet_cursors
from skep.database.upsert import written
from skep.domain.networking import FixedIp, Subnet
from skep.domain.subnet_addresses import IpAddress, following, from_key, key, ranges

WINDOW = 256
"""Addresses that one statement of a search looks at."""


def take(connection: sa.Connection, subnet: Subnet, address: IpAddress, port_id: str, position: int) -> bool:
    """Give an address to a port; false when another has it."""
    if holder(connection, subnet.id, address) is not None:
        return False
    connection.execute(port_addresses.insert().values(_row(subnet, address, port_id, position)))
    return True


def _row(subnet: Subnet, address: IpAddress, port_id: str, position: int) -> dict[str, Any]:
    return {
        "subnet_id": subnet.id,
        "address": key(address),
        "port_id": port_id,
        "ip_address": str(address),
        "position": position,
    }


def take_all(connection: sa.Connection, subnet: Subnet, addresses: Mapping[str, IpAddress]) -> None:
    """Give ports, by their ids, addresses of a subnet of which none is given yet, behind those that they have."""
    had = of_ports(connection, list(addresses))
    rows = [_row(subnet, address, port_id, len(had[port_id])) for port_id, address in addresses.items()]
    if rows:
        connection.execute(port_addresses.insert(), rows)


def holder(connection: sa.Connection, subnet_id: str, address: IpAddress) -> str | None:
    """Return the port that has an address."""
    found: str | None = connection.execute(
        sa.select(port_addresses.c.port_id).where(
            port_addresses.c.subnet_id == subnet_id, port_addresses.c.address == key(address)
        )
    ).scalar()
    return found


def take_next(connection: sa.Connection, subnet: Subnet, port_id: str, position: int) -> IpAddress | None:
    """Give a free address of the subnet's pools to a port; None when there is none."""
    for start, end in _in_order(connection, subnet):
        free = _first_free(connection, subnet, start, end)
        if free is not None:
            _go_on_behind(connection, {subnet.id: free})
            address = from_key(f"{free:032x}", subnet.ip_version)
            taken = take(connection, subnet, address, port_id, position)
            assert taken, "units of all processes are serial"
            return address
    return None


def next_free(connection: sa.Connection, subnet: Subnet, count: int) -> list[IpAddress] | None:
    """Return so many free addresses of the subnet's pools, those that `take_next` would give, and take none.

    None where they are not found soon: the subnet is crowded or has too few.
    """
    found: list[int] = []
    windows = count // WINDOW + 2
    for start, end in _in_order(connection, subnet):
        for first in range(start, end + 1, WINDOW)[:windows]:
            windows -= 1
            last = min(end, first + WINDOW - 1)
            taken = _taken(connection, subnet, first, last)
            found += [number for number in range(first, last + 1) if number not in taken][: count - len(found)]
            if len(found) == count:
                return [from_key(f"{number:032x}", subnet.ip_version) for number in found]
    return None


def take_many(connection: sa.Connection, taken: Sequence[tuple[Subnet, IpAddress, str, int]]) -> None:
    """Give ports free addresses that `next_free` found in this unit: subnet, address, port, and place in the port."""
    connection.execute(port_addresses.insert(), [_row(*one) for one in taken])
    _go_on_behind(connection, {subnet.id: int(address) for subnet, address, _, _ in taken})


def _in_order(connection: sa.Connection, subnet: Subnet) -> list[tuple[int, int]]:
    """Return the addresses of the subnet's pools as ranges, behind the last one that was given first."""
    pools = ranges(subnet.allocation_pools)
    query = sa.select(subnet_cursors.c.next_address).where(subnet_cursors.c.subnet_id == subnet.id)
    cursor = connection.execute(query).scalar() if pools else None
    return pools if cursor is None else following(pools, int(cursor, 16))


def _go_on_behind(connection: sa.Connection, last: Mapping[str, int]) -> None:
    """Have searches go on behind the addresses that were given last, by subnet."""
    rows = [{"subnet_id": subnet, "next_address": f"{address + 1:032x}"} for subnet, address in last.items()]
    connection.execute(written(connection, subnet_cursors, "subnet_id", "next_address"), rows)


def _first_free(connection: sa.Connection, subnet: Subnet, start: int, end: int) -> int | None:
    """Return the first address of a range that nobody has."""
    found = _free_among(connection, subnet, start, min(end, start + WINDOW - 1))
    if found is not None or end < start + WINDOW:
        return found
    start += WINDOW
    if _is_full(connection, subnet, start, end):
        return None
    while end - start >= WINDOW:
        middle = (start + end) // 2
        if _is_full(connection, subnet, start, middle):
            start = middle + 1
        else:
            end = middle
    return _free_among(connection, subnet, start, end)


def _free_among(connection: sa.Connection, subnet: Subnet, start: int, end: int) -> int | None:
    """Return the first free address of a small range."""
    taken = _taken(connection, subnet, start, end)
    return next((number for number in range(start, end + 1) if number not in taken), None)


def _taken(connection: sa.Connection, subnet: Subnet, start: int, end: int) -> set[int]:
    query = sa.select(port_addresses.c.address).where(*_between(subnet, start, end))
    return {int(address, 16) for address in connection.execute(query).scalars()}


def _is_full(connection: sa.Connection, subnet: Subnet, start: int, end: int) -> bool:
    query = sa.select(sa.func.count()).select_from(port_addresses).where(*_between(subnet, start, end))
    return connection.execute(query).scalar_one() == end - start + 1


def _between(subnet: Subnet, start: int, end: int) -> tuple[Condition, ...]:
    address = port_addresses.c.address
    return port_addresses.c.subnet_id == subnet.id, address >= f"{start:032x}", address <= f"{end:032x}"


def give_back(connection: sa.Connection, port_ids: list[str], *, subnet_id: str | None = None) -> None:
    """Take all addresses from ports; with a subnet those of that subnet."""
    for some in portions(port_ids):
        mine: list[Condition] = [port_addresses.c.port_id.in_(some)]
        if subnet_id is not None:
            mine.append(port_addresses.c.subnet_id == subnet_id)
        connection.execute(port_addresses.delete().where(*mine))


def of_ports(connection: sa.Connection, port_ids: list[str]) -> dict[str, list[FixedIp]]:
    """Return the addresses of ports; every id has an entry."""
    found: dict[str, list[FixedIp]] = {one: [] for one in port_ids}
    for some in portions(port_ids):
        query = port_addresses.select().where(port_addresses.c.port_id.in_(some)).order_by(port_addresses.c.position)
        for row in connection.execute(query):
            found[row.port_id].append(FixedIp(row.subnet_id, row.ip_address))
    return found


def devices_in(connection: sa.Connection, subnet_id: str, owner: str) -> dict[str, set[str]]:
    """Return the devices of ports with an address of a subnet whose device has this owner: of each its addresses."""
    query = (
        sa.select(ports.c.device_id, port_addresses.c.ip_address)
        .join(port_addresses, port_addresses.c.port_id == ports.c.id)
        .where(port_addresses.c.subnet_id == subnet_id, ports.c.device_owner == owner)
    )
    found: dict[str, set[str]] = {}
    for row in connection.execute(query):
        found.setdefault(row.device_id, set()).add(row.ip_address)
    return found


def is_used(connection: sa.Connection, subnet_id: str) -> bool:
    """Tell whether a port has an address of a subnet."""
    query = sa.select(port_addresses.c.port_id).where(port_addresses.c.subnet_id == subnet_id)
    return connection.execute(query.limit(1)).first() is not None


def give_back_all(connection: sa.Connection, subnet_id: str) -> None:
    """Take all addresses of a subnet from their ports."""
    connection.execute(port_addresses.delete().where(port_addresses.c.subnet_id == subnet_id))


def have(subnets: tuple[str, ...], addresses: tuple[str, ...], parts: tuple[str, ...]) -> Condition:
    """Return the condition that a port has an address of one of the subnets, one of these, and with one of the parts.

    What is empty does not narrow.
    """
    query = sa.select(port_addresses.c.port_id)
    if subnets:
        query = query.where(port_addresses.c.subnet_id.in_(subnets))
    if addresses:
        query = query.where(port_addresses.c.ip_address.in_(addresses))
    if parts:
        query = query.where(sa.or_(*(port_addresses.c.ip_address.contains(part, autoescape=True) for part in parts)))
    return ports.c.id.in_(query)
