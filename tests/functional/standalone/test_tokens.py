"""Signing in, validating and taking back, over HTTP."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

import httpx
import pytest

from skep.contracts.neighbours.served import PASSWORDS, ServedNeighbours, SteppedClock, sign_in_body, token


async def test_password_for_a_project(cloud: ServedNeighbours, identity: httpx.AsyncClient) -> None:
    response = await identity.post("/v3/auth/tokens", json=sign_in_body("admin", "admin"))
    assert response.status_code == 201
    assert response.headers["x-openstack-request-id"].startswith("req-")
    body = response.json()["token"]
    assert body["user"]["name"] == "admin"
    assert body["project"]["id"] == cloud.first.project_ids["admin"]
    assert {role["name"] for role in body["roles"]} == {"admin", "manager", "member", "reader"}
    assert {service["type"] for service in body["catalog"]} == {"compute", "identity", "image"}
    assert body["expires_at"].endswith("Z")
    assert len(response.headers["X-Subject-Token"]) < 400


async def test_unscoped_has_no_roles_and_no_catalogue(identity: httpx.AsyncClient) -> None:
    response = await identity.post("/v3/auth/tokens", json=sign_in_body("demo", None))
    assert response.status_code == 201
    assert {"project", "roles", "catalog", "system"}.isdisjoint(response.json()["token"])


async def test_no_scope_means_the_default_project(cloud: ServedNeighbours, identity: httpx.AsyncClient) -> None:
    body = sign_in_body("demo", None)
    del body["auth"]["scope"]
    response = await identity.post("/v3/auth/tokens", json=body)
    assert response.json()["token"]["project"]["id"] == cloud.first.project_ids["demo"]


async def test_system_scope_is_for_admins(identity: httpx.AsyncClient) -> None:
    statuses = {}
    for user in ("admin", "demo"):
        body = sign_in_body(user, None)
        body["auth"]["scope"] = {"system": {"all": True}}
        response = await identity.post("/v3/auth/tokens", json=body)
        statuses[user] = response.status_code
        if user == "admin":
            assert response.json()["token"]["system"] == {"all": True}
    assert statuses == {"admin": 201, "demo": 401}


async def test_a_token_from_a_token_lives_no_longer(identity: httpx.AsyncClient, clock: SteppedClock) -> None:
    first = await identity.post("/v3/auth/tokens", json=sign_in_body("demo", None))
    clock.advance(600)
    proof = {"methods": ["token"], "token": {"id": first.headers["X-Subject-Token"]}}
    scope = {"project": {"name": "demo", "domain": {"name": "Default"}}}
    second = await identity.post("/v3/auth/tokens", json={"auth": {"identity": proof, "scope": scope}})
    assert second.status_code == 201
    assert second.json()["token"]["expires_at"] == first.json()["token"]["expires_at"]
    assert second.json()["token"]["methods"] == ["password", "token"]
    assert second.json()["token"]["audit_ids"][1] == first.json()["token"]["audit_ids"][0]


@pytest.mark.parametrize(
    ("user", "project", "password"),
    [
        ("admin", "admin", "wrong"),
        ("nobody", "admin", "wrong"),
        ("demo", "admin", PASSWORDS["demo"]),
        ("demo", "absent", PASSWORDS["demo"]),
    ],
)
async def test_every_refusal_reads_the_same(
    identity: httpx.AsyncClient, user: str, project: str, password: str
) -> None:
    response = await identity.post("/v3/auth/tokens", json=sign_in_body(user, project, password))
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"].startswith('Keystone uri="http://127.0.0.1:')
    assert response.json() == {
        "error": {
            "code": 401,
            "title": "Unauthorized",
            "message": "The request you have made requires authentication.",
        }
    }


def _auth(**changes: Any) -> dict[str, Any]:
    auth: dict[str, Any] = sign_in_body("admin", "admin")["auth"]
    return {"auth": {**auth, **changes}}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "auth"),
        (_auth(identity={"methods": ["password"]}), "auth.identity.password"),
        (_auth(identity={"methods": []}), "auth.identity.methods"),
        (_auth(identity={"methods": ["totp"]}), "auth.identity.methods"),
        (_auth(identity={"methods": ["password"], "password": {"user": {"password": 1}}}), "password.user.password"),
        (_auth(identity={"methods": ["password"], "password": {"user": {"password": "x"}}}), "password.user"),
        (_auth(scope={"domain": {}}), "auth.scope.domain"),
        (_auth(scope={"project": {"name": "admin"}}), "auth.scope.project.domain"),
        (_auth(scope={"project": {"id": 7}}), "auth.scope.project.id"),
        (_auth(scope={"project": {"id": "a\0b"}}), "auth.scope.project.id"),
        (_auth(scope={"system": {"all": False}}), "auth.scope.system.all"),
        (_auth(scope={}), "auth.scope"),
        (_auth(scope="all"), "auth.scope"),
    ],
)
async def test_a_bad_body_is_told_by_its_field(identity: httpx.AsyncClient, body: dict[str, Any], field: str) -> None:
    response = await identity.post("/v3/auth/tokens", json=body)
    assert response.status_code == 400
    assert field in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("content", "content_type", "status"),
    [
        (b'{"auth": ', "application/json", 400),
        (b"", "application/json", 400),
        (b"\xff\xfe\x00", "application/json", 400),
        (b'"\xff"', "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b'{"auth": ' * 10_000, "application/json", 400),
        (b"x" * 10_000_000, "application/json", 413),
        (b"auth=1", "application/x-www-form-urlencoded", 415),
    ],
)
async def test_what_is_no_json(identity: httpx.AsyncClient, content: bytes, content_type: str, status: int) -> None:
    response = await identity.post("/v3/auth/tokens", content=content, headers={"Content-Type": content_type})
    assert response.status_code == status
    assert response.json()["error"]["code"] == status


async def test_a_body_without_a_length_is_cut_off(identity: httpx.AsyncClient) -> None:
    taken = 0

    async def endless() -> Any:
        nonlocal taken
        for _ in range(10_000):
            taken += 1
            yield b" " * 1024

    response = await identity.post("/v3/auth/tokens", content=endless(), headers={"Content-Type": "application/json"})
    assert response.status_code == 413


async def test_validation_of_others_is_for_services(identity: httpx.AsyncClient) -> None:
    admin, demo = await token(identity, "admin", "admin"), await token(identity, "demo", "demo")
    for who, subject, status in (
        (admin, demo, 200),
        (demo, demo, 200),
        (demo, admin, 404),
        (admin, "gAAAAA", 404),
        (demo, "gAAAAA", 404),
    ):
        headers = {"X-Auth-Token": who, "X-Subject-Token": subject}
        assert (await identity.get("/v3/auth/tokens", headers=headers)).status_code == status
        assert (await identity.head("/v3/auth/tokens", headers=headers)).status_code == status
    shown = await identity.get("/v3/auth/tokens?nocatalog", headers={"X-Auth-Token": admin, "X-Subject-Token": demo})
    assert "catalog" not in shown.json()["token"]
    assert shown.json()["token"]["user"]["name"] == "demo"


async def test_a_revoked_token_ends_at_once_and_for_good(cloud: ServedNeighbours, identity: httpx.AsyncClient) -> None:
    demo = await token(identity, "demo", "demo")
    assert await cloud.identity.validate(demo) is not None
    headers = {"X-Auth-Token": demo, "X-Subject-Token": demo}
    assert (await identity.delete("/v3/auth/tokens", headers=headers)).status_code == 204
    assert await cloud.identity.validate(demo) is None
    assert (await identity.get("/v3/auth/projects", headers={"X-Auth-Token": demo})).status_code == 401


def respelled(token: str) -> dict[str, str]:
    """Return other spellings that decoders of base64 take for the same bytes."""
    alphabet = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"
    last = alphabet.index(token[-1])
    return {
        "padded": token + "=" * (-len(token) % 4 or 4),
        "padded once": token + "=",
        "padded well": token + "====",
        "spare bits": token[:-1] + alphabet[last | 1 if last % 2 == 0 else last - 1],
        "another alphabet": token.replace("-", "+").replace("_", "/"),
        "foreign characters": token[:20] + "." + token[20:],
        "after its end": token + "=" * (-len(token) % 4) + "AAAA",
    }


async def test_another_spelling_of_a_token_is_no_token(cloud: ServedNeighbours, identity: httpx.AsyncClient) -> None:
    demo = await token(identity, "demo", "demo")
    while not {"-", "_"} & set(demo):
        demo = await token(identity, "demo", "demo")
    assert await cloud.identity.validate(demo) is not None
    for how, other in respelled(demo).items():
        assert other != demo
        assert await cloud.identity.validate(other) is None, how


async def test_a_revoked_token_ends_under_every_spelling(cloud: ServedNeighbours, identity: httpx.AsyncClient) -> None:
    demo = await token(identity, "demo", "demo")
    spellings = [demo, *respelled(demo).values()]
    for one in spellings:
        await cloud.identity.validate(one)
    headers = {"X-Auth-Token": demo, "X-Subject-Token": demo}
    assert (await identity.delete("/v3/auth/tokens", headers=headers)).status_code == 204
    assert [one for one in spellings if await cloud.identity.validate(one) is not None] == []


async def test_a_token_expires(cloud: ServedNeighbours, identity: httpx.AsyncClient, clock: SteppedClock) -> None:
    demo = await token(identity, "demo", "demo")
    clock.advance(3599)
    assert await cloud.identity.validate(demo) is not None
    clock.advance(1)
    assert await cloud.identity.validate(demo) is None


@pytest.mark.parametrize("change", [{"enabled": False}, {"password": "another"}])
async def test_a_changed_user_loses_his_tokens_at_once(
    cloud: ServedNeighbours, identity: httpx.AsyncClient, change: dict[str, Any]
) -> None:
    admin, demo = await token(identity, "admin", "admin"), await token(identity, "demo", "demo")
    known = await cloud.identity.validate(demo)
    assert known is not None
    response = await identity.patch(
        f"/v3/users/{known.user_id}", json={"user": change}, headers={"X-Auth-Token": admin}
    )
    assert response.status_code == 200
    assert "another" not in response.text
    assert await cloud.identity.validate(demo) is None
    await identity.patch(
        f"/v3/users/{known.user_id}", json={"user": {"enabled": True}}, headers={"X-Auth-Token": admin}
    )
    assert await cloud.identity.validate(demo) is None


async def test_a_role_taken_away_ends_the_token(cloud: ServedNeighbours, identity: httpx.AsyncClient) -> None:
    headers = {"X-Auth-Token": await token(identity, "admin", "admin")}
    demo = await token(identity, "demo", "demo")
    known = await cloud.identity.validate(demo)
    assert known is not None
    role = (await identity.get("/v3/roles?name=member", headers=headers)).json()["roles"][0]["id"]
    path = f"/v3/projects/{known.project_id}/users/{known.user_id}/roles/{role}"
    assert (await identity.delete(path, headers=headers)).status_code == 204
    assert await cloud.identity.validate(demo) is None
    assert (await identity.put(path, headers=headers)).status_code == 204
    assert await cloud.identity.validate(demo) is not None


async def test_no_token_is_stored(cloud: ServedNeighbours, identity: httpx.AsyncClient) -> None:
    demo = await token(identity, "demo", "demo")
    await identity.delete("/v3/auth/tokens", headers={"X-Auth-Token": demo, "X-Subject-Token": demo})
    stored = b"".join(path.read_bytes() for path in Path(cloud.database.location).parent.glob("api.sqlite*"))
    assert demo[:40].encode() not in stored


@pytest.mark.parametrize("path", ["/", "/v3", "/v3/"])
async def test_versions_need_no_token(identity: httpx.AsyncClient, path: str) -> None:
    response = await identity.get(path)
    assert response.status_code == (300 if path == "/" else 200)
    body = response.json()
    version = body["versions"]["values"][0] if path == "/" else body["version"]
    assert version["id"] == "v3.14"
    assert version["links"][0]["href"] == f"{str(identity.base_url).rstrip('/')}/v3/"
    assert (await identity.head(path)).status_code == response.status_code


async def test_unknown_paths_and_methods(identity: httpx.AsyncClient) -> None:
    assert (await identity.get("/v3/nonsense")).json()["error"]["code"] == 404
    assert (await identity.put("/v3/users")).json()["error"]["code"] == 405
    assert (await identity.get("/v3", headers={"Host": "["})).status_code in (200, 400)
