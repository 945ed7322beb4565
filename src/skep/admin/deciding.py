"""What an operator decides about a server in doubt: which guest it is, which goes, or that there is none."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from skep.admin.every_cell import ask_all
from skep.admin.services import CELL_SECONDS, AdminServices
from skep.database import Connection
from skep.database.api import instance_mappings, server_ports
from skep.database.api import recovery as above
from skep.database.cell import actions, comparing
from skep.database.cell import recovery as below
from skep.database.cell.resting import is_unknown
from skep.domain import recovery
from skep.domain.context import RequestContext
from skep.domain.errors import Conflict, NotFound
from skep.domain.ids import CellUuid, InstanceUuid, is_uuid
from skep.domain.instances import Instance
from skep.domain.recovery import Adopt, FoundGuest
from skep.domain.request_specs import RequestSpec
from skep.domain.states import GUEST_ON_HOST, PLACELESS
from skep.domain.vifs import LostPort


class GuestInQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A guest that a decision is about."""

    cell: CellUuid
    guest: FoundGuest
    is_only_one: bool
    """Whether no other host has told of a guest of the server."""


_WORTH = {"whole": 2, "aside": 1}
"""What a server would lose with an attempt: a guest, its disks that were put aside, or (others) nothing yet."""


async def found(services: AdminServices, uuid: InstanceUuid, host: str, *, keep: bool) -> GuestInQuestion:
    """Return the guest of a server that a host told of, the newest of several. Raises NotFound when there is none.

    To `keep` one it is the one that is worth most, else the one that is worth least.
    """
    told = await ask_all(services, partial(below.guests_of, uuids=[uuid]))
    there = [
        (cell, one)
        for cell, guests in told.items()
        for one in guests.get(uuid, [])
        if one.phase not in ("none", below.UNDO)
    ]
    mine = [(cell, one) for cell, one in there if one.host == host]
    if not mine and not is_uuid(uuid):
        raise NotFound(f"id: {uuid[:80]!r} is not the id of a server; `skep recovery list` shows the ids.")
    if not mine:
        raise NotFound(f"host: {host[:80]!r} has reported no guest of server {uuid}; see `skep recovery list`.")
    cell = mine[0][0]
    sign = 1 if keep else -1
    meant = max(
        (one for where, one in mine if where == cell), key=lambda one: (sign * _WORTH.get(one.phase, 0), one.attempt)
    )
    return GuestInQuestion(cell=cell, guest=meant, is_only_one={one.host for _, one in there} == {host})


async def undo(services: AdminServices, found: GuestInQuestion) -> None:
    """Have a guest destroyed. Raises Conflict when it is the server, and nothing is open about that.

    So is the only guest of a server that the API database knows: its row is made anew when all hosts have told.
    """
    mapping = await services.database.read(partial(instance_mappings.get, instance=found.guest.instance))
    is_mapped = (
        mapping is not None
        and mapping.cell == found.cell
        and mapping.deleted_at is None
        and mapping.delete_intent_at is None
    )
    unit = partial(_undo, guest=found.guest, is_mapped=found.is_only_one and is_mapped)
    await services.cell(found.cell).write(unit, intake=True, within=CELL_SECONDS)


def _undo(connection: Connection, guest: FoundGuest, *, is_mapped: bool) -> None:
    """Note that a guest is to be destroyed; `is_mapped`: it is the only one of a server that is mapped to this cell."""
    row = below.rows_before(connection, [guest.instance]).get(guest.instance)
    if row is None and is_mapped and is_unknown(connection, guest.instance):
        raise Conflict(
            f"the guest on {guest.host} is the only one of server {guest.instance}, which the API database knows: it "
            "becomes a server again by keep, or once all hosts have reported. To remove it, delete the server."
        )
    is_server = row is not None and not row.deleting and (row.attempt, row.host) == (guest.attempt, guest.host)
    if is_server and not below.is_held(connection, guest.instance):
        raise Conflict(
            f"attempt {guest.attempt} on {guest.host} is the server {guest.instance}: to remove it, delete the server."
        )
    below.want_undone(connection, guest)


async def go_on(services: AdminServices, uuid: InstanceUuid) -> list[LostPort]:
    """Let a server be built that is nowhere; return the interfaces that it has lost.

    Raises Conflict while any host has something of it, or had its guest.
    """
    now = services.clock.now()
    told = await ask_all(services, partial(_standing, uuid=uuid))
    said = list(told.values())
    hosts = [host for one in said for host in one.hosts]
    if hosts:
        raise Conflict(
            f"hosts have guests or builds of server {uuid}: {', '.join(hosts)}. Keep the guest that is the server, or "
            "undo all; go on when none is left."
        )
    if any(one.built for one in said):
        raise Conflict(
            f"server {uuid} was built, and its guest is missing: delete the server, or restore the guest on its host."
        )
    lost: list[LostPort] = []
    for cell, one in told.items():
        if one.row is not None:
            found = await _mapped(services, one.row, cell, only_lost=True)
            await _tell_lost(services, cell, one.row.instance, found)
            lost += found
    highest = max((one.highest for one in said), default=0)
    held = await services.database.write(partial(above.go_on, instance=uuid, highest=highest, now=now), intake=True)
    mapping = await services.database.read(partial(instance_mappings.get, instance=uuid))
    home = mapping.cell if mapping is not None else None
    for cell in services.cells:
        below_too = partial(_go_on_below, uuid=uuid, highest=highest, now=now, moved=home not in (None, cell))
        held |= await services.cell(cell).write(below_too, intake=True, within=CELL_SECONDS)
    if not held:
        raise Conflict(f"server {uuid} is not in doubt.")
    return lost


class _Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What a cell knows of a server that may go on."""

    hosts: tuple[str, ...]
    """Hosts with a guest or a build of it, also where that is to be destroyed and is not yet."""
    built: bool
    """Whether its row says that it has a guest."""
    highest: int
    row: above.MappedServer | None
    """The server as its row has it, where that waits for the decision and may be seen."""


def _standing(connection: Connection, uuid: InstanceUuid) -> _Standing:
    told = below.guests_of(connection, [uuid]).get(uuid, [])
    row = below.rows_before(connection, [uuid]).get(uuid)
    [said] = comparing.say(connection, [uuid])
    held = below.is_held(connection, uuid)
    return _Standing(
        hosts=tuple(sorted({one.host for one in told if one.phase != "none"})),
        built=row is not None and row.state in GUEST_ON_HOST and held,
        highest=said.highest,
        row=_row_of(connection, uuid) if held and said.living is not None else None,
    )


def _go_on_below(connection: Connection, uuid: InstanceUuid, highest: int, now: int, *, moved: bool) -> bool:
    """Let a row go on as if no host had anything of it; its next attempt is above all that any host has heard of.

    The row of a server that has `moved` to another cell is over: there it goes on.
    """
    row = below.rows_before(connection, [uuid]).get(uuid)
    if row is None or not below.is_held(connection, uuid):
        return below.let_go(connection, uuid)
    if moved:
        return comparing.leave(connection, uuid, now)
    below.go_on(connection, uuid, recovery.go_on(row, highest), now)
    return True


async def keep(services: AdminServices, found: GuestInQuestion) -> list[LostPort]:
    """Have the row follow the guest; make the row, and the mapping with its ports, where there is none.

    Return the interfaces that the server has lost.
    """
    cell, guest = found.cell, found.guest
    now, database, uuid = services.clock.now(), services.cell(cell), guest.instance
    await database.read(partial(_refuse_half, guest=guest), within=CELL_SECONDS)
    for other, [said] in (await ask_all(services, partial(comparing.say, uuids=[uuid]))).items():
        if other != cell and said.living is not None and said.living.state not in PLACELESS:
            raise Conflict(
                f"cell {services.cell_name(other)} has a row of server {uuid} that is not deleted, attempt "
                f"{said.living.attempt}: undo the guest on {guest.host}, or delete the server."
            )
    server = await database.read(partial(_row_of, uuid=uuid), within=CELL_SECONDS) or await _described(services, guest)
    server = msgspec.structs.replace(
        server, instance=msgspec.structs.replace(server.instance, host=guest.host, node=guest.node)
    )
    lost = await _mapped(services, server, cell)

    def follow(connection: Connection) -> None:
        if uuid in below.rows_before(connection, [uuid]):
            below.adopt(connection, uuid, Adopt(guest), now)
        else:
            comparing.remake(connection, guest=guest, spec=server.spec, context=server.context, now=now)

    await database.write(follow, intake=True, within=CELL_SECONDS)
    await _tell_lost(services, cell, server.instance, lost)
    return lost


def _refuse_half(connection: Connection, guest: FoundGuest) -> None:
    """Raise Conflict for what is no guest and becomes none by itself: the source or the target of a lost move."""
    row = below.rows_before(connection, [guest.instance]).get(guest.instance)
    if recovery.is_half_of_move(row, guest):
        what = "is put aside" if guest.phase == "aside" else "has no guest yet"
        raise Conflict(
            f"attempt {guest.attempt} of server {guest.instance} on {guest.host} {what}: a move had begun that the "
            "database has lost. See `Moves that went back` in docs/operations.md."
        )


def _row_of(connection: Connection, uuid: InstanceUuid) -> above.MappedServer | None:
    """Return a server as its row has it; None without a row. Raises Conflict when the row is deleted."""
    if uuid not in below.rows_before(connection, [uuid]) and not is_unknown(connection, uuid):
        raise Conflict(f"id: server {uuid} is deleted in its cell: undo its guest.")
    known = comparing.server(connection, uuid)
    if known is None:
        return None
    return above.MappedServer(instance=known.instance, spec=known.spec, context=known.context)


async def _described(services: AdminServices, guest: FoundGuest) -> above.MappedServer:
    """Return a server as its host remembers it. Raises Conflict when the host does not."""
    told = guest.described
    if told is None:
        raise Conflict(f"host {guest.host} does not remember what server {guest.instance} is: only undo is possible.")
    specs = await services.database.read(partial(above.specs_of, instances=[guest.instance]))
    spec = specs.get(guest.instance) or RequestSpec(
        project_id=told.project_id, user_id=told.user_id, flavor=told.flavor, image=told.image
    )
    context = RequestContext(request_id=told.request_id, project_id=told.project_id, user_id=told.user_id)
    return above.MappedServer(instance=told, spec=spec, context=context)


async def _mapped(
    services: AdminServices, server: above.MappedServer, cell: CellUuid, *, only_lost: bool = False
) -> list[LostPort]:
    """Have the mapping name a cell, and the project be charged; one that is not known has its ports again with that.

    `only_lost`: nothing is done about a server that is known above. Return the interfaces that it has lost. Raises
    Conflict when the server is deleted above.
    """
    instance, now, has_ports = server.instance, services.clock.now(), not services.networks.elsewhere

    def unit(connection: Connection) -> list[LostPort]:
        mapping = instance_mappings.get(connection, instance.uuid)
        if mapping is not None and only_lost:
            return []
        if mapping is not None and mapping.deleted_at is not None:
            raise Conflict(f"id: server {instance.uuid} is deleted in the API database: undo its guest.")
        return above.follow_row(connection, server, mapping, cell, now, has_ports=has_ports) or []

    return await services.database.write(unit, intake=True)


async def _tell_lost(services: AdminServices, cell: CellUuid, server: Instance, lost: Sequence[LostPort]) -> None:
    """Tell the owner of a server, and its row, of interfaces that cannot be had again."""
    if lost:
        now = services.clock.now()
        told = partial(actions.tell_lost, server=server, lost=lost, now=now)
        await services.cell(cell).write(told, intake=True, within=CELL_SECONDS)
        note = partial(server_ports.note_server, now=now, instance=server.uuid)
        await services.database.write(note, intake=True)
