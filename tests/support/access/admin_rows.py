"""Rows of the admin API's matrix: every route, and who has the right to it.

A credential has the right `cell` or `namespace`, to what it is bound to; what it is not bound to is not there for it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from functools import partial
from typing import Any

from skep.domain.ids import new_uuid
from tests.support.access.admin_world import FOR_USERS, OPEN_TO_ENROLMENT, SCHEMA, Things
from tests.support.access.matrix import Row, Thing


def admin_rows(things: Things) -> list[Row]:
    """Return all rows."""
    return [*_cells(things), *_hosts(things), *_placement(things), *_namespaces(things), *_cloud()]


def user_rows() -> list[Row]:
    """Return the rows of what users are served beside the compute API."""
    events = partial(
        Row, method="GET", path="/events", right="reader", service=FOR_USERS, but={"system": 403, "domain": 403}
    )
    return [events(), events(query="limit=1&type=server.active")]


def _cells(things: Things) -> Iterator[Row]:
    one = Thing(things.cell.own, things.cell.missing)
    cell = partial(Row, right="admin", thing=one, fill={"name": one})
    yield Row(method="GET", path="/cells", right="admin")
    yield Row(method="POST", path="/cells", right="admin", body={"name": "new"}, served=409)
    yield cell(method="GET", path="/cells/{name}")
    yield cell(method="PATCH", path="/cells/{name}", body={"disabled": True})
    yield cell(method="DELETE", path="/cells/{name}", served=409)
    for kind, held in (("credentials", things.cell_credential), ("enrolment-tokens", things.enrolment_token)):
        path = f"/cells/{{name}}/{kind}"
        yield cell(method="GET", path=path)
        yield cell(method="POST", path=path, body={"description": "new"})
        one = Thing(held.own, held.missing)
        fill = {"name": "cell1", "id": one}
        yield Row(method="DELETE", path=f"{path}/{{id}}", right="admin", thing=one, fill=fill)
    machine = {"host": "h7", "node": new_uuid(), "public_key": base64.b64encode(b"m" * 32).decode()}
    # It is for machines, which have no other proof than the token: whoever has another is as good as without any.
    every = (
        "cell",
        "namespace",
        "admin",
        "member",
        "reader",
        "manager",
        "service",
        "guest",
        "nobody",
        "system",
        "domain",
    )
    but = {OPEN_TO_ENROLMENT: 200, "with a credential that was taken back": 403, **dict.fromkeys(every, 401)}
    but |= {"cell": 403, "namespace": 403}
    yield Row(method="POST", path="/enrolments", right="any", body=machine, but=but)


def _hosts(things: Things) -> Iterator[Row]:
    host = partial(Row, right="admin", thing=things.host, fill={"host": things.host})
    silent = partial(Row, right="admin", thing=things.silent_host, fill={"host": things.silent_host})
    yield Row(method="GET", path="/hosts", right="admin")
    yield Row(method="GET", path="/hosts", right="admin", query="cell={thing}", thing=Thing("cell1", "nowhere"))
    yield host(method="GET", path="/hosts/{host}")
    yield host(method="PATCH", path="/hosts/{host}", body={"disabled": True})
    yield silent(method="POST", path="/hosts/{host}/fence", body={"although_unknown": True}, served=409)
    yield silent(method="DELETE", path="/hosts/{host}/fence", served=409)
    yield host(method="GET", path="/hosts/{host}/plan")
    yield host(method="DELETE", path="/hosts/{host}/key")
    # Nothing recovers here: there is no host to wait for, and no server to decide about.
    yield host(method="POST", path="/recovery/hosts/{host}/release", served=409, missing=409)
    cell = partial(Row, path="/host-states", right="cell")
    yield cell(method="GET")
    yield cell(method="GET", query="cell={thing}", thing=things.cell)
    yield cell(method="GET", query="node={thing}", thing=things.node, missing=200, hidden=frozenset({200, 403}))
    usage: dict[str, Any] = {"host": "h1", "inventory": {"VCPU": {"total": 8}}, "used": {"VCPU": 0}}
    report = {"node": things.node, "incarnation": 2, "seq": 1, "usage": usage}
    reports = partial(cell, method="POST", thing=things.node, body={"reports": [report]})
    # Each report is answered for itself.
    yield reports(missing=200, hidden=frozenset({200, 403}))


def _placement(things: Things) -> Iterator[Row]:
    server = things.server
    yield Row(
        method="GET",
        path="/servers/{id}/placement",
        right="reader",
        thing=server,
        fill={"id": server},
        but={
            **dict.fromkeys(("guest", "service"), 404),
            **dict.fromkeys(("system", "system of foreign", "domain", "domain of foreign"), 404),
        },
    )
    decided = partial(
        Row, method="POST", path="/recovery/servers/{id}", right="admin", thing=server, fill={"id": server}
    )
    yield decided(body={"go_on": True}, served=409, missing=409)
    yield decided(body={"undo": "h1"}, served=404)
    yield Row(method="POST", path="/placement/dry-run", right="admin", body={"flavor": "m1.tiny"})
    yield Row(method="POST", path="/select-destinations", right="admin", body={"flavor": "m1.tiny"})
    yield Row(method="GET", path="/capacity", right="admin", query="flavor=m1.tiny")
    claim = {"instance": "i", "attempt": 1, "node": things.node}
    asserted = {"cell": "cell1", "epoch": "e", "claims": [{**claim, "resources": {"VCPU": 1}}]}
    row = partial(Row, method="POST", right="cell", thing=things.node)
    # The node is of another cell than the one that the body names.
    other = dict.fromkeys(("admin of foreign", "system of foreign", "domain of foreign"), 404)
    yield row(path="/claims/assert", body=asserted, but=other)
    yield Row(
        method="POST",
        path="/claims/assert",
        right="cell",
        thing=things.cell,
        body={"cell": things.cell, "epoch": "e", "claims": []},
    )
    yield row(path="/claims/release", body={"claims": [claim]})


def _namespaces(things: Things) -> Iterator[Row]:
    of = things.namespace
    one = Thing(of.own, of.missing)
    fixed = partial(Row, right="admin", thing=one, fill={"name": one})
    yield Row(method="GET", path="/namespaces", right="admin")
    yield Row(method="GET", path="/namespaces/{name}", right="namespace", thing=of, fill={"name": of})
    yield fixed(method="PUT", path="/namespaces/{name}", body=SCHEMA, missing=200)
    yield fixed(method="DELETE", path="/namespaces/{name}")
    path = "/namespaces/{name}/credentials"
    yield fixed(method="GET", path=path)
    yield fixed(method="POST", path=path, body={"description": "new"})
    held = Thing(things.namespace_credential.own, things.namespace_credential.missing)
    fill: dict[str, Any] = {"name": of.own, "id": held}
    yield Row(method="DELETE", path=f"{path}/{{id}}", right="admin", thing=held, fill=fill)
    states = partial(Row, right="namespace", thing=of)
    path = "/namespaces/{name}/states"
    yield states(method="GET", path=path, fill={"name": of})
    new = {"states": [{"key": "new", "incarnation": 1, "seq": 1, "state": {"free_gb": 5}}]}
    yield states(method="PUT", path=path, fill={"name": of}, body=new)
    for key, there in (("k", 200), ("none", 404)):
        for method in ("GET", "DELETE") if there == 200 else ("GET",):
            yield states(method=method, path=f"{path}/{{key}}", fill={"name": of, "key": key}, served=there)


def _cloud() -> Iterator[Row]:
    yield Row(method="GET", path="/audit", right="admin")
    yield Row(method="POST", path="/audit/repair", right="admin", body={"dry_run": False})
    yield Row(method="GET", path="/clocks", right="admin")
    yield Row(method="GET", path="/events", right="admin")
    yield Row(method="GET", path="/recovery", right="admin")
    yield Row(method="GET", path="/openapi.json", right="admin")
