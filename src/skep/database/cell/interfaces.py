"""What a cell's rows say of the interfaces of their servers, and the host that their ports are bound to.

An interface that leaves its server (`Vif.leaving`) stays in the row until the network service has released its port,
and whoever tells the row meanwhile does not change that. Such a row is among the `misbound` ones. Nor does that change
what is said of an interface on the target of a live migration (`Vif.beside`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.database.cell.instances import AWAITS_PORTS, ELSEWHERE, UNBOUND, UNKNOWN
from skep.database.cell.tables import MISBOUND, instances, migrations
from skep.database.stored import dump, load
from skep.domain.ids import InstanceUuid
from skep.domain.providers import Allocation
from skep.domain.server_migrations import MigrationType
from skep.domain.vifs import Unwired, Vif, VifBeside, staying, unwired

row = instances.c


def tell(connection: sa.Connection, vifs: Mapping[InstanceUuid, Sequence[Vif]], now: int) -> None:
    """Write the interfaces of servers into their rows, but for builds that wait for new ports."""
    before = stored(connection, list(vifs))
    for uuid, found in vifs.items():
        connection.execute(_telling(uuid, _as_before(found, before.get(uuid)), now))


def lose(connection: sa.Connection, uuid: InstanceUuid, port_id: str, now: int) -> None:
    """Write the interfaces of a server without one, where the row says it again: it was told of its ports meanwhile."""
    found = _said(connection, [uuid]).get(uuid, ())
    left = [vif for vif in found if vif.id != port_id]
    if len(left) != len(found):
        connection.execute(_telling(uuid, left, now))


def left(connection: sa.Connection, uuid: InstanceUuid, port_id: str, now: int) -> None:
    """Write the interfaces of a server without one that has left it; one that it has got again since stays."""
    found = _said(connection, [uuid]).get(uuid, ())
    stay = [vif for vif in found if vif.id != port_id or not vif.leaving]
    if len(stay) != len(found):
        connection.execute(_telling(uuid, stay, now))


def regain(connection: sa.Connection, uuid: InstanceUuid, vif: Vif, place: int, now: int) -> None:
    """Write an interface that a server has after all at its place among the others, unless its row says it already."""
    found = _said(connection, [uuid]).get(uuid)
    if found is not None and all(one.id != vif.id for one in found):
        connection.execute(_telling(uuid, [*found[:place], vif, *found[place:]], now))


def plug(connection: sa.Connection, uuid: InstanceUuid, vif: Vif) -> bool:
    """Write one more interface that the host of a server gives to its guest; False where there is no row to write."""
    found = connection.execute(sa.select(row.vifs).where(row.uuid == uuid, ~ELSEWHERE)).first()
    if found is None:
        return False
    others = [one for one in _read(found.vifs) if one.id != vif.id]
    connection.execute(instances.update().where(row.uuid == uuid).values(**columns([*others, vif])))
    return True


def has(connection: sa.Connection, uuid: InstanceUuid, port_id: str) -> bool:
    """Tell whether a server has an interface that does not leave it."""
    found = connection.execute(sa.select(row.vifs).where(row.uuid == uuid, ~ELSEWHERE)).scalar()
    return any(one.id == port_id for one in staying(_read(found)))


def first_of(connection: sa.Connection, ports: Mapping[InstanceUuid, Collection[str]]) -> dict[InstanceUuid, Vif]:
    """Return of servers the first interface that has one of these ports, as far as it does not leave them."""
    found = {
        uuid: next((one for one in staying(vifs) if one.id in ports[uuid]), None)
        for uuid, vifs in _said(connection, list(ports)).items()
    }
    return {uuid: vif for uuid, vif in found.items() if vif is not None}


def leave(connection: sa.Connection, uuid: InstanceUuid, port_id: str) -> None:
    """Write that an interface leaves its server, whose guest has it no more, or never got it."""
    found = _read(connection.execute(sa.select(row.vifs).where(row.uuid == uuid)).scalar())
    if any(one.id == port_id for one in found):
        left = [msgspec.structs.replace(one, leaving=True) if one.id == port_id else one for one in found]
        connection.execute(instances.update().where(row.uuid == uuid).values(**columns(left)))


def going(connection: sa.Connection, uuid: InstanceUuid) -> tuple[Vif, ...]:
    """Return the interfaces that leave a server: their ports are not released yet."""
    found = _read(connection.execute(sa.select(row.vifs).where(row.uuid == uuid)).scalar())
    return tuple(one for one in found if one.leaving)


def leaving(connection: sa.Connection, uuids: Sequence[str]) -> dict[InstanceUuid, tuple[str, ...]]:
    """Return the ports of the interfaces that leave those of these servers that have such."""
    found = {
        uuid: tuple(one.id for one in _read(said) if one.leaving) for uuid, said in stored(connection, uuids).items()
    }
    return {uuid: ports for uuid, ports in found.items() if ports}


def stored(connection: sa.Connection, uuids: Sequence[str]) -> dict[InstanceUuid, bytes | None]:
    """Return what rows say of interfaces, as it is stored, of those of these servers that are here."""
    query = sa.select(row.uuid, row.vifs).where(row.uuid.in_(uuids), row.deleted_at.is_(None))
    return {InstanceUuid(one.uuid): one.vifs for one in connection.execute(query)}


def tell_unchanged(
    connection: sa.Connection,
    vifs: Mapping[InstanceUuid, Sequence[Vif]],
    known: Mapping[InstanceUuid, bytes | None],
    now: int,
) -> list[InstanceUuid]:
    """Write interfaces into those rows that still say what was `known` before the interfaces were looked up.

    Return the others: who wrote them may know of something newer. A row that says so already stays as it is: lists of
    what changed are not to show it.
    """
    left, _ = _told_unchanged(connection, vifs, known, now)
    return left


def _told_unchanged(
    connection: sa.Connection,
    vifs: Mapping[InstanceUuid, Sequence[Vif]],
    known: Mapping[InstanceUuid, bytes | None],
    now: int,
) -> tuple[list[InstanceUuid], set[InstanceUuid]]:
    """Write interfaces as `tell_unchanged` does; return what it returns, and the servers that have a port more now."""
    vifs = {uuid: _as_before(vifs[uuid], before) for uuid, before in known.items()}
    same = {uuid for uuid, before in known.items() if columns(vifs[uuid])["vifs"] == before}
    left = [uuid for uuid, said in stored(connection, sorted(same)).items() if said != known[uuid]]
    changed = {uuid: before for uuid, before in known.items() if uuid not in same}
    more = {uuid for uuid, before in changed.items() if _has_more(vifs[uuid], before)}
    for uuid, before in changed.items():
        telling = _telling(uuid, vifs[uuid], now, uuid in more)
        telling = telling.where(row.vifs.is_not_distinct_from(before))
        if not connection.execute(telling).rowcount:
            left.append(uuid)
    return left, more


def _has_more(vifs: Sequence[Vif], before: bytes | None) -> bool:
    """Tell whether a server has a port that it did not have."""
    had = {vif.id for vif in _read(before)}
    return any(vif.id not in had for vif in vifs)


def _telling(uuid: InstanceUuid, vifs: Sequence[Vif], now: int, has_more: bool | None = None) -> sa.Update:
    # Which ports are old is what the row of a build says that waits for new ones.
    changed = instances.update().where(row.uuid == uuid, row.deleted_at.is_(None), ~AWAITS_PORTS)
    return changed.values(**columns(vifs, has_more), changed_at=now)


def columns(vifs: Sequence[Vif], has_more: bool | None = None) -> dict[str, Any]:
    """Return what a row says of its server's interfaces. One that has a port more now gets all of them bound.

    `has_more` is None where that is not known: then one of which anything changed.
    """
    if not vifs:
        return {"vifs": None, "bound_to": sa.null()}
    said, kept = dump(tuple(vifs)), sa.func.coalesce(row.bound_to, UNKNOWN)
    if has_more is None:
        return {"vifs": said, "bound_to": sa.case((row.vifs == said, kept), else_=UNKNOWN)}
    return {"vifs": said, "bound_to": UNKNOWN if has_more else kept}


def told(connection: sa.Connection, uuids: Sequence[str]) -> dict[InstanceUuid, tuple[Vif, ...]]:
    """Return what rows say of the ports of these servers, as far as their servers are here: also of those that leave.

    Left out are builds that wait for new ports: what they have changes.
    """
    return {
        uuid: tuple(
            msgspec.structs.replace(vif, leaving=False, beside=None) if vif.leaving or vif.beside else vif
            for vif in vifs
        )
        for uuid, vifs in _said(connection, uuids).items()
    }


def note_beside(connection: sa.Connection, beside: Mapping[InstanceUuid, Mapping[str, VifBeside]]) -> None:
    """Write how ports of servers, by their ids, are plugged on the hosts to which they are bound besides; of others it
    is not known any more."""
    for uuid, said in stored(connection, list(beside)).items():
        vifs, there = _read(said), beside[uuid]
        changed = [msgspec.structs.replace(vif, beside=there.get(vif.id)) for vif in vifs]
        if changed != list(vifs):
            noting = instances.update().where(row.uuid == uuid, row.deleted_at.is_(None))
            connection.execute(noting.values(**columns(changed, has_more=False)))


def _said(connection: sa.Connection, uuids: Sequence[str]) -> dict[InstanceUuid, tuple[Vif, ...]]:
    here = row.uuid.in_(uuids), row.deleted_at.is_(None), ~ELSEWHERE, ~AWAITS_PORTS
    query = sa.select(row.uuid, row.vifs).where(*here)
    return {InstanceUuid(one.uuid): _read(one.vifs) for one in connection.execute(query)}


def unwired_of(connection: sa.Connection, uuid: InstanceUuid, attempt: int, host: str) -> Unwired | None:
    """Return which interfaces of a server are not wired on the host that builds it by this attempt; None where the row
    names another host or attempt.
    """
    query = sa.select(row.vifs, row.bound_to).where(row.uuid == uuid, row.attempt == attempt, row.host == host)
    found = connection.execute(query).first()
    if found is None:
        return None
    return unwired(staying(_read(found.vifs)), bound=found.bound_to == host)


def misbound(connection: sa.Connection, limit: int) -> dict[InstanceUuid, str]:
    """Return servers whose ports are bound to another host than theirs, with the right one; empty: to none."""
    query = sa.select(row.uuid, row.host).where(MISBOUND, ~AWAITS_PORTS, ~ELSEWHERE).order_by(row.uuid).limit(limit)
    return {InstanceUuid(one.uuid): one.host or UNBOUND for one in connection.execute(query)}


def providers_of(connection: sa.Connection, uuids: Sequence[str]) -> dict[InstanceUuid, dict[str, str]]:
    """Return of servers whose ports ask for resources of their host the UUIDs of the providers that serve them, by the
    groups that the ports ask for.
    """
    query = sa.select(row.uuid, row.allocation).where(row.uuid.in_(uuids), row.allocation.is_not(None))
    held: dict[InstanceUuid, dict[str, str]] = {
        InstanceUuid(one.uuid): load(one.allocation, Allocation).ports for one in connection.execute(query)
    }
    return {uuid: ports for uuid, ports in held.items() if ports}


def bound_anew(bound_to: str | None, before: bytes | None, after: bytes | None) -> dict[str, str]:
    """Return what a row says of bindings from now on whose server goes from one stored allocation to another.

    Where other providers serve its ports they are bound anew, for the host may be the same. Nothing: what it said.
    """
    if bound_to is None or before == after:
        return {}
    return {} if _serving(before) == _serving(after) else {"bound_to": UNKNOWN}


def _serving(stored: bytes | None) -> dict[str, str]:
    """Return which providers serve ports, by an allocation as a column holds it."""
    return load(stored, Allocation).ports if stored else {}


def doubt_bindings(connection: sa.Connection, uuids: Sequence[str]) -> int:
    """Note that it is not known to which hosts the ports of these servers are bound: they are bound anew. Return of how
    many of them it was known.

    So it is before ports are to follow their servers, too: a request may be done although its answer never came, and
    the server be back by then.
    """
    bound = sa.and_(row.bound_to.is_not(None), row.bound_to != UNKNOWN, ~AWAITS_PORTS)
    known = row.uuid.in_(uuids), row.deleted_at.is_(None), bound
    return connection.execute(instances.update().where(*known).values(bound_to=UNKNOWN)).rowcount


def tell_bound(
    connection: sa.Connection,
    hosts: Mapping[InstanceUuid, str],
    vifs: Mapping[InstanceUuid, Sequence[Vif]],
    known: Mapping[InstanceUuid, bytes | None],
    now: int,
) -> None:
    """Write what the ports of servers are since they are bound to these hosts, as `tell_unchanged`, and note the hosts.

    A row that was told by others meanwhile is not bound, for it may say of a port what was true on another host. Nor is
    one that is told of a port more: the port may have come after the others were bound.
    """
    left, more = _told_unchanged(connection, vifs, known, now)
    note_bound(connection, {one: host for one, host in hosts.items() if one not in more and one not in left})


def settled(connection: sa.Connection, uuids: Sequence[str]) -> dict[InstanceUuid, str]:
    """Return to which host the ports of servers are said to be bound; empty: to none.

    Left out are those that are to be bound anew, and those with ports at the target of a migration.
    """
    moves = sa.select(migrations.c.instance).where(migrations.c.dest_binding.is_not(None))
    query = sa.select(row.uuid, row.bound_to).where(
        row.uuid.in_(uuids),
        row.deleted_at.is_(None),
        ~ELSEWHERE,
        row.bound_to == sa.func.coalesce(row.host, UNBOUND),
        row.uuid.not_in(moves),
    )
    return {InstanceUuid(one.uuid): one.bound_to for one in connection.execute(query)}


def migrated_live(connection: sa.Connection, uuids: Sequence[str]) -> set[InstanceUuid]:
    """Return those of servers that were migrated live: their ports may be bound to hosts that they have left."""
    moved = sa.and_(migrations.c.instance.in_(uuids), migrations.c.type == MigrationType.LIVE.value)
    return {InstanceUuid(one) for one in connection.scalars(sa.select(migrations.c.instance).where(moved).distinct())}


def note_bound(connection: sa.Connection, hosts: Mapping[InstanceUuid, str]) -> None:
    """Note that the ports of servers are bound to these hosts; of a server that has another by now it is not known.

    Then they are bound once more: what was bound for the host before may have come after what was bound for this one.
    So are those of which an interface has begun to leave.
    """
    those = leaving(connection, list(hosts))
    for uuid, host in hosts.items():
        here = sa.func.coalesce(row.host, UNBOUND) == host
        right = UNKNOWN if uuid in those else sa.case((here, host), else_=UNKNOWN)
        changed = instances.update().where(row.uuid == uuid, row.bound_to.is_not(None), ~AWAITS_PORTS)
        connection.execute(changed.values(bound_to=right))


def _as_before(vifs: Sequence[Vif], before: bytes | None) -> tuple[Vif, ...]:
    """Return interfaces with what the row said of them before, and the network service does not say."""
    said = {vif.id: vif for vif in _read(before) if vif.leaving or vif.beside is not None}
    return tuple(
        msgspec.structs.replace(vif, leaving=said[vif.id].leaving, beside=said[vif.id].beside)
        if vif.id in said
        else vif
        for vif in vifs
    )


def _read(said: bytes | None) -> tuple[Vif, ...]:
    found: tuple[Vif, ...] = load(said, tuple[Vif, ...]) if said else ()
    return found
