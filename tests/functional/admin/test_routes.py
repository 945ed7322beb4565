"""What every route of the admin API has in common: who may ask, and what a bad request is told."""

from __future__ import annotations

import re

from skep.admin.app import ROUTES, AdminApi
from tests.support.admin import Admin

FILLED = {"{name}": "cell1", "{host}": "h1", "{id}": "x", "{key}": "k"}
PATHS = [
    (method, f"/admin/v1{re.sub('{name}|{host}|{id}|{key}', lambda found: FILLED[found[0]], path)}")
    for method, path, _ in ROUTES
]


BAD = [
    ("GET", "/admin/v1/nothing", b"", 404),
    ("GET", "/admin/v1", b"", 404),
    ("POST", "/admin/v1/cells/cell1", b"", 405),
    ("GET", "/admin/v1/cells/elsewhere", b"", 404),
    ("GET", "/admin/v1/hosts/h9", b"", 404),
    ("GET", "/admin/v1/hosts?cell=elsewhere", b"", 404),
    ("GET", "/admin/v1/hosts?sort=name", b"", 400),
    ("PATCH", "/admin/v1/cells/cell1", b"", 400),
    ("PATCH", "/admin/v1/cells/cell1", b"\xff", 400),
    ("PATCH", "/admin/v1/cells/cell1", b"[" * 50_000, 400),
    ("PATCH", "/admin/v1/cells/cell1", b'{"disabled": "yes"}', 400),
    ("PATCH", "/admin/v1/cells/cell1", b'{"disabled": true, "name": "x"}', 400),
    ("PATCH", "/admin/v1/cells/elsewhere", b'{"disabled": true}', 404),
    ("PATCH", "/admin/v1/cells/cell0", b'{"disabled": true}', 409),
    ("PATCH", "/admin/v1/hosts/h1", b"{}", 400),
    ("PATCH", "/admin/v1/hosts/h1", b'{"disabled_reason": "why"}', 400),
    ("PATCH", "/admin/v1/hosts/h1", b'{"disabled": true, "disabled_reason": "a\\u0000b"}', 400),
    ("PATCH", "/admin/v1/hosts/h9", b'{"disabled": true}', 404),
    ("PATCH", "/admin/v1/hosts/h1", b"x" * 100_000, 413),
    ("GET", "/admin/v1/servers/one/placement", b"", 404),
    ("GET", "/admin/v1/servers/00000000-0000-4000-8000-000000000000/placement", b"", 404),
    ("POST", "/admin/v1/placement/dry-run", b'{"flavor": "none"}', 400),
    ("POST", "/admin/v1/placement/dry-run", b'{"flavor": "m1.tiny", "count": 1000}', 400),
    ("POST", "/admin/v1/placement/dry-run", b'{"flavor": "m1.tiny", "cell": "none"}', 404),
    ("POST", "/admin/v1/select-destinations", b'{"flavor": "none"}', 400),
    ("POST", "/admin/v1/select-destinations", b'{"flavor": "m1.tiny", "dry_run": false}', 403),
    ("POST", "/admin/v1/select-destinations", b'{"flavor": "m1.tiny", "members": []}', 400),
    ("POST", "/admin/v1/select-destinations", b'{"flavor": "m1.tiny", "min_count": 2}', 400),
    ("POST", "/admin/v1/select-destinations", b'{"flavor": "m1.tiny", "alternates": -1}', 400),
    ("POST", "/admin/v1/select-destinations", b'{"flavor": "m1.tiny", "exclude_cells": ["none"]}', 404),
    (
        "POST",
        "/admin/v1/select-destinations",
        b'{"flavor": "m1.tiny", "members": [{"instance":"i","attempt":-1}]}',
        400,
    ),
    ("GET", "/admin/v1/host-states?limit=0", b"", 400),
    ("GET", "/admin/v1/host-states?limit=many", b"", 400),
    ("GET", "/admin/v1/host-states?aggregate=-1", b"", 400),
    ("GET", "/admin/v1/host-states?cell=none", b"", 404),
    ("GET", "/admin/v1/host-states?colour=red", b"", 400),
    ("POST", "/admin/v1/host-states", b"[]", 400),
    ("POST", "/admin/v1/host-states", b'{"reports": []}', 400),
    ("POST", "/admin/v1/host-states", b" " * 800_000, 413),
    ("POST", "/admin/v1/claims/assert", b'{"cell": "none", "epoch": "e1"}', 404),
    ("POST", "/admin/v1/claims/assert", b'{"cell": "cell1"}', 400),
    ("POST", "/admin/v1/claims/release", b'{"claims": [{"instance": "i", "attempt": 1, "node": "none"}]}', 404),
    ("POST", "/admin/v1/claims/release", b'{"claims": [{"instance": "i", "attempt": -1, "node": "n1"}]}', 400),
    ("GET", "/admin/v1/cells/none/credentials", b"", 404),
    ("POST", "/admin/v1/cells/cell0/credentials", b"{}", 409),
    ("POST", "/admin/v1/cells/cell1/credentials", b'{"expires_in": 0}', 400),
    ("POST", "/admin/v1/cells/cell1/credentials", b'{"expires_in": 1e30}', 400),
    ("POST", "/admin/v1/cells/cell1/credentials", b'{"description": "a\\u0000b"}', 400),
    ("DELETE", "/admin/v1/cells/cell1/credentials/none", b"", 404),
    ("POST", "/admin/v1/cells/cell0/enrolment-tokens", b"{}", 409),
    ("POST", "/admin/v1/cells/none/enrolment-tokens", b"{}", 404),
    ("POST", "/admin/v1/cells/cell1/enrolment-tokens", b'{"uses": 0}', 400),
    ("POST", "/admin/v1/cells/cell1/enrolment-tokens", b'{"expires_in": 1000000000}', 400),
    ("DELETE", "/admin/v1/cells/cell1/enrolment-tokens/none", b"", 404),
    ("GET", "/admin/v1/namespaces/none", b"", 404),
    ("DELETE", "/admin/v1/namespaces/none", b"", 404),
    ("PUT", "/admin/v1/namespaces/compute", b'{"fields": {"free": {"type": "integer"}}}', 400),
    ("PUT", "/admin/v1/namespaces/Volume", b'{"fields": {"free": {"type": "integer"}}}', 400),
    ("PUT", "/admin/v1/namespaces/volume", b'{"fields": {}}', 400),
    ("PUT", "/admin/v1/namespaces/volume", b'{"fields": {"free": {"type": "float"}}}', 400),
    ("PUT", "/admin/v1/namespaces/volume", b'{"fields": {"free": {"type": "string", "minimum": 1}}}', 400),
    ("PUT", "/admin/v1/namespaces/volume", b'{"fields": {"free": {"type": "integer"}}, "join": {"field": "x"}}', 400),
    ("PUT", "/admin/v1/namespaces/none/states", b'{"states": []}', 404),
    ("GET", "/admin/v1/namespaces/none/credentials", b"", 404),
    ("GET", "/admin/v1/events?limit=0", b"", 400),
    ("GET", "/admin/v1/events?after=x", b"", 400),
    ("GET", "/admin/v1/events?after=7", b"", 400),
    ("GET", "/admin/v1/events?after=7-x", b"", 410),
    ("GET", "/admin/v1/events?after=7-x%20", b"", 400),
    ("GET", "/admin/v1/events?after=7-%20x", b"", 400),
    ("GET", "/admin/v1/events?limit=1&limit=2", b"", 400),
    ("GET", "/admin/v1/events?type=nothing", b"", 400),
    ("GET", "/admin/v1/events?server=one", b"", 400),
    ("GET", "/v1/events?project=p", b"", 400),
    ("GET", "/v1/nothing", b"", 404),
]


async def test_every_route_wants_a_token(admin: Admin) -> None:
    for method, path in PATHS:
        for token in (None, "", "forged", "x" * 9000):
            response = await admin.ask(method, path, token=token)
            assert (path, response.status_code) == (path, 401)
            assert response.json()["error"]["code"] == 401


async def test_all_but_placements_and_enrolments_are_for_admins(admin: Admin) -> None:
    for method, path in PATHS:
        if not path.endswith(("/placement", "/enrolments")):
            response = await admin.ask(method, path, token="owner", json={})
            assert (path, response.status_code) == (path, 403)


async def test_what_a_client_sends_is_its_own_fault(admin: Admin) -> None:
    for method, path, content, status in BAD:
        response = await admin.ask(method, path, content=content)
        assert response.status_code == status, (path, content[:60], response.text)
        error = response.json()["error"]
        assert error["code"] == status
        assert error["message"]
        assert response.headers["x-openstack-request-id"].startswith("req-")
    assert admin.scheduler.published == []


async def test_a_bad_field_is_named(admin: Admin) -> None:
    response = await admin.ask("PATCH", "/admin/v1/cells/cell1", json={"disabled": 1})
    assert "$.disabled" in response.json()["error"]["message"]


async def test_a_slash_at_the_end_and_head_are_accepted(admin: Admin) -> None:
    assert (await admin.ask("GET", "/admin/v1/cells/")).status_code == 200
    assert (await admin.ask("HEAD", "/admin/v1/cells")).status_code == 200


async def test_documents(admin: Admin) -> None:
    assert await admin.good("GET", "/openapi.json") == {"openapi": "3.1.0"}
    compute = {"name": "compute", "records": 2, "registered": False}
    assert await admin.good("GET", "/namespaces") == {"namespaces": [compute], "quarantined": []}


def test_what_belongs_to_it_on_a_shared_listener() -> None:
    for path in ("/admin/v1", "/admin/v1/cells", "/v1/events", "/healthz", "/readyz", "/metrics"):
        assert AdminApi.serves(path)
    for path in ("/", "/v2.1/servers", "/admin", "/administration", "/metrics/x"):
        assert not AdminApi.serves(path)
