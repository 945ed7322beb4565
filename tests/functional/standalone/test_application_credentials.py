"""Application credentials: a part of what a user may, for a program; with access rules, for some requests alone."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from skep.api.auth import authenticate
from skep.contracts.neighbours.served import ServedNeighbours, SteppedClock, token
from skep.database.api.application_credentials import ApplicationCredential
from skep.domain.clock import isoformat_micro
from skep.domain.errors import Unauthenticated
from skep.domain.ids import RequestId
from skep.http.addresses import network_of
from skep.standalone.identity.turns import Place

SECRET = "the secret of a program"
LIST = {"service": "compute", "method": "GET", "path": "/v2.1/servers"}
SHOW = {"service": "compute", "method": "GET", "path": "/v2.1/servers/{server_id}"}


class Program:
    """What shows credentials of the user demo."""

    def __init__(self, client: httpx.AsyncClient, user_id: str, users_token: str) -> None:
        self.client, self.user_id = client, user_id
        self.headers = {"X-Auth-Token": users_token}
        self.path = f"/v3/users/{user_id}/application_credentials"

    async def make(self, name: str = "program", *, by: str | None = None, **fields: Any) -> httpx.Response:
        headers = self.headers if by is None else {"X-Auth-Token": by}
        body = {"application_credential": {"name": name, "secret": SECRET, **fields}}
        return await self.client.post(self.path, json=body, headers=headers)

    async def made(self, name: str = "program", **fields: Any) -> dict[str, Any]:
        answer = await self.make(name, **fields)
        assert answer.status_code == 201, answer.text
        return dict(answer.json()["application_credential"])

    async def sign_in(self, credential: str, secret: str = SECRET, **more: Any) -> httpx.Response:
        shown = {"id": credential, "secret": secret}
        proof = {"methods": ["application_credential"], "application_credential": shown}
        return await self.client.post("/v3/auth/tokens", json={"auth": {"identity": proof, **more}})

    async def token(self, credential: str) -> str:
        answer = await self.sign_in(credential)
        assert answer.status_code == 201, answer.text
        return str(answer.headers["X-Subject-Token"])


@pytest.fixture
async def program(identity: httpx.AsyncClient) -> Program:
    held = await token(identity, "demo", "demo")
    shown = await identity.get("/v3/auth/tokens", headers={"X-Auth-Token": held, "X-Subject-Token": held})
    return Program(identity, shown.json()["token"]["user"]["id"], held)


async def test_a_program_signs_in_for_one_project(cloud: ServedNeighbours, program: Program) -> None:
    made = await program.made(description="deploys", roles=[{"name": "reader"}])
    assert made["secret"] == SECRET
    assert [role["name"] for role in made["roles"]] == ["reader"]
    shown = (await program.sign_in(made["id"])).json()["token"]
    assert shown["methods"] == ["application_credential"]
    assert shown["project"]["id"] == cloud.first.project_ids["demo"]
    assert [role["name"] for role in shown["roles"]] == ["reader"]
    assert shown["application_credential"] == {"id": made["id"], "name": "program", "restricted": True}
    seen = await program.client.get(f"{program.path}/{made['id']}", headers=program.headers)
    assert "secret" not in seen.json()["application_credential"]
    assert SECRET not in (await program.client.get(program.path, headers=program.headers)).text
    by_name = {"name": "program", "secret": SECRET, "user": {"name": "demo", "domain": {"id": "default"}}}
    proof = {"methods": ["application_credential"], "application_credential": by_name}
    assert (await program.client.post("/v3/auth/tokens", json={"auth": {"identity": proof}})).status_code == 201


async def test_a_secret_is_made_where_none_is_given(program: Program) -> None:
    made = await program.made("other", secret=None)
    assert len(made["secret"]) > 60
    assert {role["name"] for role in made["roles"]} == {"member", "reader"}
    assert (await program.sign_in(made["id"], made["secret"])).status_code == 201


async def test_nobody_learns_what_was_wrong(program: Program) -> None:
    made = await program.made()
    answers = [
        await program.sign_in(made["id"], "wrong"),
        await program.sign_in("f" * 32),
        await program.sign_in(program.user_id),
    ]
    assert {answer.status_code for answer in answers} == {401}
    assert len({answer.json()["error"]["message"] for answer in answers}) == 1
    stored = ApplicationCredential(
        id="i", user_id="u", project_id="p", name="n", secret_hash=SECRET, role_ids=frozenset(), created_at=0
    )
    assert SECRET not in repr(stored)


async def test_wrong_secrets_are_delayed_as_wrong_passwords_are(program: Program) -> None:
    made = await program.made()
    for _ in range(5):
        assert (await program.sign_in(made["id"], "wrong")).status_code == 401
    refused = await program.sign_in(made["id"])
    assert refused.status_code == 429
    assert int(refused.headers["Retry-After"]) > 0


async def test_its_end_comes_with_its_time(program: Program, clock: SteppedClock) -> None:
    made = await program.made(expires_at=isoformat_micro(clock.now() + 600_000_000))
    answer = await program.sign_in(made["id"])
    assert answer.json()["token"]["expires_at"].startswith(made["expires_at"])
    held = {"X-Auth-Token": answer.headers["X-Subject-Token"]}
    assert (await program.client.get("/v3/auth/projects", headers=held)).status_code == 200
    clock.advance(601)
    assert (await program.client.get("/v3/auth/projects", headers=held)).status_code == 401
    assert (await program.sign_in(made["id"])).status_code == 401


async def test_its_end_comes_with_a_delete_or_a_role_taken_away(
    cloud: ServedNeighbours, identity: httpx.AsyncClient, program: Program
) -> None:
    gone, kept = await program.made("gone"), await program.made("kept")
    tokens = [{"X-Auth-Token": await program.token(one["id"])} for one in (gone, kept)]
    deleted = await program.client.delete(f"{program.path}/{gone['id']}", headers=program.headers)
    assert deleted.status_code == 204
    assert (await identity.get("/v3/auth/projects", headers=tokens[0])).status_code == 401
    assert (await program.sign_in(gone["id"])).status_code == 401
    assert (await identity.get("/v3/auth/projects", headers=tokens[1])).status_code == 200
    admin = {"X-Auth-Token": await token(identity, "admin", "admin")}
    role = (await identity.get("/v3/roles?name=member", headers=admin)).json()["roles"][0]["id"]
    place = f"/v3/projects/{cloud.first.project_ids['demo']}/users/{program.user_id}/roles/{role}"
    assert (await identity.delete(place, headers=admin)).status_code == 204
    assert (await identity.get("/v3/auth/projects", headers=tokens[1])).status_code == 401
    assert (await program.sign_in(kept["id"])).status_code == 401


async def test_one_that_is_not_unrestricted_makes_no_others(program: Program) -> None:
    held = await program.token((await program.made())["id"])
    assert (await program.make("second", by=held)).status_code == 403
    seen = await program.client.get(program.path, headers={"X-Auth-Token": held})
    assert [one["name"] for one in seen.json()["application_credentials"]] == ["program"]
    free = await program.token((await program.made("free", unrestricted=True))["id"])
    assert (await program.make("second", by=free)).status_code == 201
    proof = {"methods": ["token"], "token": {"id": held}}
    scope = {"project": {"name": "demo", "domain": {"id": "default"}}}
    again = await program.client.post("/v3/auth/tokens", json={"auth": {"identity": proof, "scope": scope}})
    assert again.status_code == 403


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v2.1/servers", True),
        ("GET", "/v2.1/servers/6f1d", True),
        ("GET", "/v2.1/servers/6f1d/ips", False),
        ("POST", "/v2.1/servers", False),
        ("DELETE", "/v2.1/servers/6f1d", False),
    ],
)
async def test_the_compute_api_keeps_access_rules(
    cloud: ServedNeighbours, program: Program, method: str, path: str, allowed: bool
) -> None:
    held = await program.token((await program.made(access_rules=[LIST, SHOW]))["id"])
    asked = authenticate(cloud.identity, {b"x-auth-token": held.encode()}, RequestId("req-1"), method, path)
    if allowed:
        assert (await asked).user_id == program.user_id
    else:
        with pytest.raises(Unauthenticated):
            await asked


async def test_identity_and_images_keep_access_rules(
    images: httpx.AsyncClient, identity: httpx.AsyncClient, program: Program
) -> None:
    rules = [
        {"service": "image", "method": "GET", "path": "/v2/images"},
        {"service": "identity", "method": "GET", "path": "/v3/auth/projects"},
    ]
    held = {"X-Auth-Token": await program.token((await program.made(access_rules=rules))["id"])}
    assert (await images.get("/v2/images", headers=held)).status_code == 200
    assert (await images.post("/v2/images", json={"name": "x"}, headers=held)).status_code == 401
    assert (await identity.get("/v3/auth/projects", headers=held)).status_code == 200
    assert (await identity.get(program.path, headers=held)).status_code == 401
    # The openstack client sends this where it is given no rules.
    free = {"X-Auth-Token": await program.token((await program.made("free", access_rules=[]))["id"])}
    assert (await images.post("/v2/images", json={"name": "x"}, headers=free)).status_code == 201


async def test_a_token_with_rules_is_shown_to_services_that_keep_them(
    identity: httpx.AsyncClient, program: Program
) -> None:
    held = await program.token((await program.made(access_rules=[LIST]))["id"])
    admin = {"X-Auth-Token": await token(identity, "admin", "admin"), "X-Subject-Token": held}
    assert (await identity.get("/v3/auth/tokens", headers=admin)).status_code == 404
    promised = {**admin, "OpenStack-Identity-Access-Rules": "1.0"}
    shown = (await identity.get("/v3/auth/tokens", headers=promised)).json()["token"]["application_credential"]
    assert [{key: rule[key] for key in LIST} for rule in shown["access_rules"]] == [LIST]


async def test_rules_are_kept_and_used_again(program: Program) -> None:
    first = await program.made("first", access_rules=[LIST, LIST, SHOW])
    assert len(first["access_rules"]) == 2
    rule = first["access_rules"][0]["id"]
    second = await program.made("second", access_rules=[{"id": rule}])
    path = f"/v3/users/{program.user_id}/access_rules"
    listed = (await program.client.get(path, headers=program.headers)).json()["access_rules"]
    assert {one["id"] for one in listed} == {one["id"] for one in first["access_rules"]}
    assert (await program.client.delete(f"{path}/{rule}", headers=program.headers)).status_code == 409
    for made in (first, second):
        assert (await program.client.delete(f"{program.path}/{made['id']}", headers=program.headers)).is_success
    assert (await program.client.delete(f"{path}/{rule}", headers=program.headers)).status_code == 204
    assert (await program.client.get(f"{path}/{rule}", headers=program.headers)).status_code == 404


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"roles": [{"name": "admin"}]}, "roles[0]"),
        ({"roles": [{}]}, "roles[0]"),
        ({"expires_at": "soon"}, "expires_at"),
        ({"expires_at": "2001-01-01T00:00:00"}, "expires_at"),
        ({"access_rules": [{"service": "compute"}]}, "access_rules[0]"),
        ({"access_rules": [{"id": "f" * 32}]}, "access_rules[0]"),
        ({"access_rules": [{**LIST, "path": "servers"}]}, "path"),
        ({"access_rules": [{**LIST, "path": "/" + "x" * 128}]}, "path"),
        ({"access_rules": [{**LIST, "method": "TRACE"}]}, "method"),
        ({"access_rules": [LIST] * 65}, "access_rules"),
        ({"project_id": "f" * 32}, "project_id"),
        ({"secret": ""}, "secret"),
        ({"name": ""}, "name"),
    ],
)
async def test_what_is_wrong_is_named(program: Program, fields: dict[str, Any], named: str) -> None:
    body = {"application_credential": {"name": "program", "secret": SECRET, **fields}}
    answer = await program.client.post(program.path, json=body, headers=program.headers)
    assert answer.status_code == 400
    assert named in answer.json()["error"]["message"]
    assert (await program.client.get(program.path, headers=program.headers)).json()["application_credentials"] == []


async def test_signing_in_takes_no_scope_and_no_other_proof(program: Program) -> None:
    made = await program.made()
    scoped = await program.sign_in(made["id"], scope={"system": {"all": True}})
    assert (scoped.status_code, "auth.scope" in scoped.json()["error"]["message"]) == (400, True)
    proof = {"methods": ["application_credential"], "application_credential": {"name": "program", "secret": "x"}}
    half = await program.client.post("/v3/auth/tokens", json={"auth": {"identity": proof}})
    assert half.status_code == 400
    assert (await program.make()).status_code == 409


@pytest.mark.parametrize("undone", ["the user is deleted", "the role is taken", "the token is revoked"])
async def test_what_ends_while_a_secret_is_hashed_makes_none(
    cloud: ServedNeighbours, program: Program, monkeypatch: pytest.MonkeyPatch, undone: str
) -> None:
    admin = {"X-Auth-Token": await token(program.client, "admin", "admin")}
    hashed, project = cloud.identity.passwords.hash, cloud.first.project_ids["demo"]
    shown = await program.client.get("/v3/roles?name=member", headers=admin)
    [member] = shown.json()["roles"]
    path, more = {
        "the user is deleted": (f"/v3/users/{program.user_id}", {}),
        "the role is taken": (f"/v3/projects/{project}/users/{program.user_id}/roles/{member['id']}", {}),
        "the token is revoked": ("/v3/auth/tokens", {"X-Subject-Token": program.headers["X-Auth-Token"]}),
    }[undone]

    async def late(password: str, place: Place) -> str:
        answer = await program.client.delete(path, headers={**admin, **more})
        assert answer.status_code == 204, answer.text
        return await hashed(password, place)

    monkeypatch.setattr(cloud.identity.passwords, "hash", late)
    assert (await program.make()).status_code == 401


async def test_a_user_who_makes_many_waits_in_a_place_of_his_own(
    cloud: ServedNeighbours, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be made waits nowhere."""
    hashed = cloud.identity.passwords.hash
    places: list[Place] = []

    async def noted(password: str, place: Place) -> str:
        places.append(place)
        return await hashed(password, place)

    monkeypatch.setattr(cloud.identity.passwords, "hash", noted)
    await program.made()
    assert places == [Place(network_of("127.0.0.1"), program.user_id)]
    assert (await program.make()).status_code == 409
    assert len(places) == 1
