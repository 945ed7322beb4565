"""What the API database alone must agree on: mappings, cells, build requests, quota."""

from __future__ import annotations

from collections.abc import Iterator

from skep.audit import doubts
from skep.audit.difference import Difference, Kind
from skep.database import Connection
from skep.database.api import build_requests, host_mappings, quotas, server_groups
from skep.database.api import instance_mappings as mappings
from skep.database.api.instance_mappings import Mapping
from skep.domain.quotas import COUNTED


def differences(connection: Connection) -> list[Difference]:
    """Compare the tables of the API database with each other, on one consistent view."""
    return [
        *(_of_attempt("mapping_without_request", one) for one in mappings.without_request(connection)),
        *_requests_without_mapping(connection),
        *_mappings_without_cell(connection),
        *_hosts_without_cell(connection),
        *_specs_without_server(connection),
        *(_of_attempt("server_without_spec", one) for one in mappings.without_spec(connection)),
        *_members_without_server(connection),
        *_sums(connection),
        *_charges_without_server(connection),
        *_servers_without_charge(connection),
        *doubts.above(connection),
    ]


def _of_attempt(kind: Kind, mapping: Mapping) -> Difference:
    return Difference(kind=kind, subject=mapping.instance, evidence={"mapping": {"attempt": mapping.attempt}})


def _requests_without_mapping(connection: Connection) -> Iterator[Difference]:
    for one in build_requests.needless(connection):
        yield Difference(
            kind="request_without_mapping",
            subject=one.instance,
            evidence={"revision": one.revision, "mapping": {"cell": one.cell, "deleted_at": one.deleted_at}},
        )


def _mappings_without_cell(connection: Connection) -> Iterator[Difference]:
    for one in mappings.without_cell(connection):
        evidence = {"cell": one.cell, "attempt": one.attempt, "delete_intent_at": one.delete_intent_at}
        yield Difference(kind="mapping_without_cell", subject=one.instance, evidence=evidence)


def _hosts_without_cell(connection: Connection) -> Iterator[Difference]:
    for one in host_mappings.without_cell(connection):
        yield Difference(kind="host_without_cell", subject=one.host, evidence={"cell": one.cell, "node": one.node})


def _specs_without_server(connection: Connection) -> Iterator[Difference]:
    for instance in build_requests.specs_without_server(connection):
        yield Difference(kind="spec_without_server", subject=instance, evidence={})


def _members_without_server(connection: Connection) -> Iterator[Difference]:
    for instance, group in server_groups.members_without_server(connection):
        yield Difference(kind="member_without_server", subject=instance, evidence={"group": group})


def _sums(connection: Connection) -> Iterator[Difference]:
    charged, kept = quotas.charged(connection), quotas.sums(connection)
    nothing = dict.fromkeys(COUNTED, 0)
    for project in sorted(charged.keys() | kept.keys()):
        says, adds_up_to = kept.get(project, nothing), charged.get(project, nothing)
        if says != adds_up_to:
            yield Difference(kind="quota_sum", subject=project, evidence={"sum": says, "charges": adds_up_to})


def _charges_without_server(connection: Connection) -> Iterator[Difference]:
    for instance, project, charge in quotas.charges_without_server(connection):
        yield Difference(
            kind="quota_charge_without_server",
            subject=instance,
            evidence={"project": project, "charge": {name: getattr(charge, name) for name in COUNTED}},
        )


def _servers_without_charge(connection: Connection) -> Iterator[Difference]:
    for one in mappings.without_charge(connection):
        yield Difference(
            kind="server_without_quota_charge",
            subject=one.instance,
            evidence={"project": one.project_id, "cell": one.cell},
        )
