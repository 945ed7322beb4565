"""What the API database alone must agree on: mappings, cells, build requests, quota."""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa

from skep.audit import doubts
from skep.audit.difference import Difference
from skep.audit.lost_cells import NO_CELL
from skep.database.api.tables import (
    build_requests,
    cells,
    host_mappings,
    instance_mappings,
    quota_charges,
    quota_sums,
    request_specs,
    server_group_members,
)
from skep.domain.quotas import COUNTED

mapping = instance_mappings.c
_living = mapping.deleted_at.is_(None)


def differences(connection: sa.Connection) -> list[Difference]:
    """Compare the tables of the API database with each other, on one consistent view."""
    return [
        *_mappings_without_request(connection),
        *_requests_without_mapping(connection),
        *_mappings_without_cell(connection),
        *_hosts_without_cell(connection),
        *_specs_without_server(connection),
        *_servers_without_spec(connection),
        *_members_without_server(connection),
        *_sums(connection),
        *_charges_without_server(connection),
        *_servers_without_charge(connection),
        *doubts.above(connection),
    ]


def _mappings_without_request(connection: sa.Connection) -> Iterator[Difference]:
    requested = sa.exists().where(build_requests.c.instance == mapping.instance)
    query = sa.select(mapping.instance, mapping.attempt).where(_living, mapping.cell.is_(None), ~requested)
    for row in connection.execute(query):
        yield Difference(
            kind="mapping_without_request", subject=row.instance, evidence={"mapping": {"attempt": row.attempt}}
        )


def _requests_without_mapping(connection: sa.Connection) -> Iterator[Difference]:
    query = (
        sa.select(build_requests.c.instance, build_requests.c.revision, mapping.cell, mapping.deleted_at)
        .join_from(build_requests, instance_mappings, mapping.instance == build_requests.c.instance, isouter=True)
        .where(sa.or_(mapping.instance.is_(None), mapping.cell.is_not(None), mapping.deleted_at.is_not(None)))
    )
    for row in connection.execute(query):
        yield Difference(
            kind="request_without_mapping",
            subject=row.instance,
            evidence={"revision": row.revision, "mapping": {"cell": row.cell, "deleted_at": row.deleted_at}},
        )


def _mappings_without_cell(connection: sa.Connection) -> Iterator[Difference]:
    query = sa.select(mapping.instance, mapping.cell, mapping.attempt, mapping.delete_intent_at).where(
        _living, mapping.cell.is_not(None), NO_CELL
    )
    for row in connection.execute(query):
        evidence = {"cell": row.cell, "attempt": row.attempt, "delete_intent_at": row.delete_intent_at}
        yield Difference(kind="mapping_without_cell", subject=row.instance, evidence=evidence)


def _hosts_without_cell(connection: sa.Connection) -> Iterator[Difference]:
    host = host_mappings.c
    there = sa.exists().where(cells.c.uuid == host.cell)
    for row in connection.execute(sa.select(host.host, host.node, host.cell).where(~there)):
        yield Difference(kind="host_without_cell", subject=row.host, evidence={"cell": row.cell, "node": row.node})


def _specs_without_server(connection: sa.Connection) -> Iterator[Difference]:
    server = sa.exists().where(mapping.instance == request_specs.c.instance, _living)
    for instance in connection.scalars(sa.select(request_specs.c.instance).where(~server)):
        yield Difference(kind="spec_without_server", subject=instance, evidence={})


def _servers_without_spec(connection: sa.Connection) -> Iterator[Difference]:
    spec = sa.exists().where(request_specs.c.instance == mapping.instance)
    query = sa.select(mapping.instance, mapping.attempt).where(_living, mapping.cell.is_(None), ~spec)
    for row in connection.execute(query):
        yield Difference(
            kind="server_without_spec", subject=row.instance, evidence={"mapping": {"attempt": row.attempt}}
        )


def _members_without_server(connection: sa.Connection) -> Iterator[Difference]:
    member = server_group_members.c
    server = sa.exists().where(mapping.instance == member.instance, _living)
    for row in connection.execute(sa.select(member.instance, member.group_uuid).where(~server)):
        yield Difference(kind="member_without_server", subject=row.instance, evidence={"group": row.group_uuid})


def _sums(connection: sa.Connection) -> Iterator[Difference]:
    charged = {
        row.project_id: {name: int(getattr(row, name)) for name in COUNTED}
        for row in connection.execute(
            sa.select(
                quota_charges.c.project_id, *(sa.func.sum(quota_charges.c[name]).label(name) for name in COUNTED)
            ).group_by(quota_charges.c.project_id)
        )
    }
    kept = {
        row.project_id: {name: getattr(row, name) for name in COUNTED}
        for row in connection.execute(sa.select(quota_sums))
    }
    nothing = dict.fromkeys(COUNTED, 0)
    for project in sorted(charged.keys() | kept.keys()):
        says, adds_up_to = kept.get(project, nothing), charged.get(project, nothing)
        if says != adds_up_to:
            yield Difference(kind="quota_sum", subject=project, evidence={"sum": says, "charges": adds_up_to})


def _charges_without_server(connection: sa.Connection) -> Iterator[Difference]:
    server = sa.exists().where(mapping.instance == quota_charges.c.instance, _living)
    for row in connection.execute(sa.select(quota_charges).where(~server)):
        yield Difference(
            kind="quota_charge_without_server",
            subject=row.instance,
            evidence={"project": row.project_id, "charge": {name: getattr(row, name) for name in COUNTED}},
        )


def _servers_without_charge(connection: sa.Connection) -> Iterator[Difference]:
    charge = sa.exists().where(quota_charges.c.instance == mapping.instance)
    query = sa.select(mapping.instance, mapping.project_id, mapping.cell).where(_living, ~charge)
    for row in connection.execute(query):
        yield Difference(
            kind="server_without_quota_charge",
            subject=row.instance,
            evidence={"project": row.project_id, "cell": row.cell},
        )
