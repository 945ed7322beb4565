"""Enrolment tokens: bound to a cell, for so many hosts, until they expire; and what a new host is told."""

from __future__ import annotations

import base64
import dataclasses
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from skep.admin.app import AdminApi
from skep.admin.joining import Messaging
from skep.database.api.enrolment_tables import enrolment_tokens
from skep.database.cell import cell_keys, host_keys
from skep.domain.cells import Cell
from skep.domain.credentials import new_token, parse
from skep.domain.errors import Misconfigured
from skep.domain.ids import NodeUuid, new_uuid
from skep.domain.sessions import public_half
from tests.support.admin import CELL1, Admin

TOLD = Messaging(url="nats://hosts:secret@nats:4222", prefix="skep", ca="PEM")


@pytest.fixture
def joining(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> Admin:
    """Have the admin API tell new hosts of a messaging."""

    async def messaging(_cell: Cell, _node: NodeUuid, _host: str) -> Messaging:
        return TOLD

    serve_with(admin, monkeypatch, messaging)
    return admin


def serve_with(admin: Admin, monkeypatch: pytest.MonkeyPatch, messaging: Any) -> None:
    services = dataclasses.replace(admin.services, messaging=messaging)
    monkeypatch.setattr(admin.client._transport, "app", AdminApi(services))


def machine(host: str = "h9", seed: bytes = b"k") -> dict[str, Any]:
    return {"host": host, "node": new_uuid(), "public_key": base64.b64encode(seed * 32).decode()}


async def made(admin: Admin, **body: Any) -> str:
    return str((await admin.good("POST", "/cells/cell1/enrolment-tokens", json=body))["enrolment_token"]["secret"])


async def enrol(admin: Admin, token: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    headers = {"Authorization": f"Bearer {token}"}
    response = await admin.client.post("/admin/v1/enrolments", json=body, headers=headers)
    return response.status_code, response.json()


async def refused(admin: Admin, token: str, body: dict[str, Any], status: int = 403) -> str:
    got, answer = await enrol(admin, token, body)
    assert got == status, answer
    return str(answer["error"]["message"])


async def test_a_machine_is_told_its_cell_and_its_key_is_bound(joining: Admin) -> None:
    body = machine()
    status, answer = await enrol(joining, await made(joining), body)
    assert status == 200
    private = await joining.services.cells[CELL1].read(partial(cell_keys.private_key, now=1))
    key = base64.b64encode(public_half(private)).decode()
    assert answer["enrolment"] == {
        "cell": {"uuid": CELL1, "name": "cell1", "public_key": key},
        "host": "h9",
        "node": body["node"],
        "messaging": {"url": TOLD.url, "prefix": "skep", "ca": "PEM", "credentials": "", "inbox": ""},
    }
    bound = await joining.services.cells[CELL1].read(partial(host_keys.get, node=NodeUuid(body["node"])))
    assert bound == b"k" * 32


async def test_a_repeat_gets_the_same_answer_and_uses_the_token_once(joining: Admin) -> None:
    token, body = await made(joining, uses=2), machine()
    first = await enrol(joining, token, body)
    assert await enrol(joining, token, body) == first
    (left,) = (await joining.good("GET", "/cells/cell1/enrolment-tokens"))["enrolment_tokens"]
    assert (left["uses"], left["uses_left"]) == (2, 1)
    assert (await enrol(joining, token, machine("h10", b"l")))[0] == 200
    assert "used up: it was for 2 hosts" in await refused(joining, token, machine("h11", b"m"))
    assert await enrol(joining, token, body) == first, "even of a token that is used up"
    assert "This key was enrolled as host h9" in await refused(joining, token, {**body, "host": "other"})


async def test_one_that_has_expired_one_of_elsewhere_and_one_taken_back(joining: Admin) -> None:
    token = await made(joining, expires_in=3600)
    await joining.write(sa.update(enrolment_tokens).values(expires_at=1))
    assert "has expired" in await refused(joining, token, machine())
    assert "another installation" in await refused(joining, new_token().text, machine())
    parsed = parse(token)
    assert parsed is not None
    wrong = f"skep_{parsed.id}_{new_token().secret}"
    assert "not known here" in await refused(joining, wrong, machine())
    assert await joining.good("DELETE", f"/cells/cell1/enrolment-tokens/{parsed.id}")
    assert "taken back" in await refused(joining, token, machine())


async def test_a_credential_of_a_cell_enrols_nobody_and_a_token_is_no_credential(joining: Admin) -> None:
    secret = (await joining.good("POST", "/cells/cell1/credentials", json={}))["credential"]["secret"]
    assert "not known here" in await refused(joining, secret, machine())
    headers = {"Authorization": f"Bearer {await made(joining)}"}
    for path in ("/host-states", "/cells"):
        assert (await joining.client.get(f"/admin/v1{path}", headers=headers)).status_code == 401


async def test_a_name_that_another_node_has_is_refused_and_the_token_keeps_its_use(joining: Admin) -> None:
    token = await made(joining)
    taken = (await joining.good("GET", "/hosts"))["hosts"][0]["host"]
    assert f"Host {taken} is node" in await refused(joining, token, machine(taken), 409)
    assert (await enrol(joining, token, machine()))[0] == 200


async def test_another_key_for_a_node_that_has_one_is_refused(joining: Admin) -> None:
    token, body = await made(joining, uses=2), machine()
    assert (await enrol(joining, token, body))[0] == 200
    other = {**machine(seed=b"l"), "node": body["node"]}
    assert "has another key" in await refused(joining, token, other, 409)


@pytest.mark.parametrize(
    "change", [{"host": "a b"}, {"host": "../x"}, {"node": "n"}, {"public_key": "AAAA"}, {"more": 1}]
)
async def test_nonsense_is_named_and_uses_nothing(joining: Admin, change: dict[str, Any]) -> None:
    token = await made(joining)
    assert next(iter(change)) in await refused(joining, token, {**machine(), **change}, 400)
    assert (await enrol(joining, token, machine()))[0] == 200


async def test_where_messages_stay_in_the_process_nobody_joins(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    token, body = await made(admin), machine()
    assert "hosts of this process only" in await refused(admin, token, body, 409)

    async def messaging(_cell: Cell, _node: NodeUuid, _host: str) -> Messaging:
        raise Misconfigured("transport.kind is `memory`")

    serve_with(admin, monkeypatch, messaging)
    assert "transport.kind" in await refused(admin, token, body, 409)


async def test_only_a_hash_is_stored_and_those_that_expired_make_room(joining: Admin) -> None:
    secret = await made(joining)

    def unit(connection: sa.Connection) -> list[Any]:
        return list(connection.execute(sa.select(enrolment_tokens)))

    (row,) = await joining.services.database.read(unit)
    token = parse(secret)
    assert token is not None
    assert token.secret not in str(row)
    assert len(row.secret_hash) == 32
    await joining.write(sa.update(enrolment_tokens).values(expires_at=1))
    await made(joining)
    assert len(await joining.services.database.read(unit)) == 1


async def test_an_admin_releases_the_key_of_a_host(joining: Admin) -> None:
    host = (await joining.good("GET", "/hosts?cell=cell1"))["hosts"][0]
    path = f"/admin/v1/hosts/{host['host']}/key"
    assert (await joining.ask("DELETE", path)).status_code == 404
    binding = partial(host_keys.bind, node=NodeUuid(host["node"]), host=host["host"], public_key=b"k" * 32, now=1)
    await joining.services.cells[CELL1].write(binding)
    assert (await joining.ask("DELETE", path)).status_code == 200
    read = partial(host_keys.get, node=NodeUuid(host["node"]))
    assert await joining.services.cells[CELL1].read(read) is None
    assert (await joining.ask("DELETE", "/admin/v1/hosts/none/key")).status_code == 404
