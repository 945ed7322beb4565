"""Compares what services beside a cloud have with what its rows say, from outside, once nothing is under way.

*leaked*: a port, binding, attachment, reserved volume or volume that no server has and no user brought, or a user's
that is not free again; a volume that was made twice for one disk of a server, or is attached to it twice. *lost*: what
a server has by its row, or what a user brought, and is not there.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from skep_lab.beside.services import ServicesBeside, ThingsOfUsers
from skep_lab.cinder_twin.store import TwinAttachment, TwinVolume
from skep_lab.witnesses.witness import Findings
from skep_lab.witnesses.witness_rows import AWAY

Json = dict[str, Any]

_QUERY = "SELECT uuid, name, state, host, volumes, vifs FROM instances WHERE deleted_at IS NULL"
_BESIDE = (AWAY, "moved", "leaving")
"""States of a row that is not where its server is."""


class HasRow(msgspec.Struct, frozen=True, kw_only=True):
    """What the row of a server says that it has."""

    uuid: str
    name: str
    state: str
    host: str
    """Empty: it is on none."""
    volumes: tuple[Json, ...]
    ports: tuple[str, ...]


class SeenBeside(msgspec.Struct, frozen=True, kw_only=True):
    """What rows and services have, at about one moment."""

    rows: dict[str, HasRow]
    ports: tuple[Json, ...]
    volumes: dict[str, TwinVolume]
    attachments: tuple[TwinAttachment, ...]
    with_snapshots: frozenset[str] = frozenset()
    """Volumes that cannot be deleted."""


def look(state: Path, services: ServicesBeside) -> SeenBeside:
    """Look at the files of a state directory and into the services."""
    store = services.volumes
    return SeenBeside(
        rows=_rows(state),
        ports=tuple(services.ports()),
        volumes=services.seen_volumes(),
        attachments=tuple(msgspec.structs.replace(one) for one in list(store.attachments.values())),
        with_snapshots=frozenset(one.volume_id for one in list(store.snapshots.values())),
    )


def _rows(state: Path) -> dict[str, HasRow]:
    found: dict[str, HasRow] = {}
    for path in (state / "db").glob("*.db"):
        if path.stem == "api":
            continue
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            for uuid, name, its_state, host, volumes, vifs in connection.execute(_QUERY):
                if its_state not in _BESIDE:
                    found[uuid] = HasRow(
                        uuid=uuid,
                        name=name,
                        state=its_state,
                        host=host or "",
                        volumes=tuple(json.loads(bytes(volumes)) if volumes else ()),
                        ports=tuple(one["id"] for one in (json.loads(bytes(vifs)) if vifs else ())),
                    )
    return found


def differences(seen: SeenBeside, things: ThingsOfUsers) -> Findings:
    """Say what went wrong between a cloud that is quiet and its services."""
    return Findings(
        leaked=(
            *_leaked_attachments(seen),
            *_leaked_volumes(seen, things),
            *_leaked_ports(seen, things),
            *_doubled(seen),
        ),
        lost=(*_lost_volumes(seen, things), *_lost_ports(seen, things)),
    )


def _leaked_attachments(seen: SeenBeside) -> Iterator[str]:
    named = {(row.uuid, one["volume_id"], one["attachment_id"]) for row in seen.rows.values() for one in row.volumes}
    for one in seen.attachments:
        if (one.instance, one.volume_id, one.id) not in named:
            yield f"attachment without its server: {one.status} {one.volume_id} of {one.instance}"


def _leaked_volumes(seen: SeenBeside, things: ThingsOfUsers) -> Iterator[str]:
    attached = {one.volume_id for one in seen.attachments}
    named = {one["volume_id"] for row in seen.rows.values() for one in row.volumes}
    for one in seen.volumes.values():
        if one.status not in ("available", "in-use", "error", "reserved") or one.becomes:
            yield f"volume {one.id} is {one.status}"
        elif one.status in ("in-use", "reserved") and one.id not in attached:
            yield f"volume {one.id} is {one.status}, and no server has it"
        is_ours = one.id not in things.volumes | things.given
        # Of a volume that a user has taken from its server no server is named any more.
        ends = one.metadata.get("skep_made") == "ends" and bool(one.metadata.get("skep_server"))
        if is_ours and ends and one.id not in named and one.id not in seen.with_snapshots:
            yield f"volume without its server: {one.id} is {one.status}, made for {one.metadata.get('skep_server')}"


def _leaked_ports(seen: SeenBeside, things: ThingsOfUsers) -> Iterator[str]:
    named = {(row.uuid, one) for row in seen.rows.values() for one in row.ports}
    for one in seen.ports:
        server = one["device_id"]
        if not one["device_owner"].startswith("compute:") and one["id"] not in things.ports:
            continue
        if server and (server, one["id"]) not in named:
            yield f"port without its server: {one['id']} of {server}"
        elif not server and one["id"] not in things.ports:
            yield f"port of nobody: {one['id']}"
        elif not server and one["binding:host_id"]:
            yield f"binding without its server: {one['id']} to {one['binding:host_id']}"
        elif server and one["binding:host_id"] != seen.rows[server].host:
            yield f"port {one['id']} is bound to {one['binding:host_id']}, its server is on {seen.rows[server].host}"


def _lost_volumes(seen: SeenBeside, things: ThingsOfUsers) -> Iterator[str]:
    for mine in sorted(things.volumes - seen.volumes.keys()):
        yield f"volume of a user is gone: {mine}"
    there = {one.id: one for one in seen.attachments}
    for row in seen.rows.values():
        for volume in row.volumes:
            attachment = there.get(volume["attachment_id"])
            if volume["volume_id"] not in seen.volumes:
                yield f"{row.uuid} has a volume that is gone: {volume['volume_id']}"
            elif attachment is None:
                yield f"{row.uuid} is {row.state} and has lost its attachment of {volume['volume_id']}"
            elif row.host and (attachment.status, attachment.connector.get("host")) != ("attached", row.host):
                yield (
                    f"{row.uuid} is {row.state} on {row.host}, and its volume {volume['volume_id']} is "
                    f"{attachment.status} at {attachment.connector.get('host')}"
                )


def _lost_ports(seen: SeenBeside, things: ThingsOfUsers) -> Iterator[str]:
    there = {one["id"]: one["device_id"] for one in seen.ports}
    for mine in sorted(things.ports - there.keys()):
        yield f"port of a user is gone: {mine}"
    for row in seen.rows.values():
        for port in row.ports:
            if there.get(port) != row.uuid:
                yield f"{row.uuid} is {row.state} and has lost its port {port}"


def _doubled(seen: SeenBeside) -> Iterator[str]:
    of_servers = Counter((one.instance, one.volume_id) for one in seen.attachments)
    made: Sequence[tuple[str | None, str | None]] = [
        (one.metadata.get("skep_server"), one.metadata.get("skep_position"))
        for one in seen.volumes.values()
        # One that outlives its server names none.
        if one.metadata.get("skep_server") and one.metadata.get("skep_volume", one.id) == one.id
    ]
    for key, times in (*of_servers.items(), *Counter(made).items()):
        if times > 1:
            yield f"{times} times there: {key[1]} of {key[0]}"
