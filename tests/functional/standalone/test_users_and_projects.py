"""Users, projects and roles over HTTP; what must not be done, and storage that fails."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from skep.contracts.neighbours.served import PASSWORDS, ServedNeighbours, sign_in_body, token
from skep.standalone.identity.bootstrap import ensure_bootstrap


@pytest.fixture
async def admin(identity: httpx.AsyncClient) -> dict[str, str]:
    return {"X-Auth-Token": await token(identity, "admin", "admin")}


@pytest.fixture
async def demo(identity: httpx.AsyncClient) -> dict[str, str]:
    return {"X-Auth-Token": await token(identity, "demo", "demo")}


@contextlib.contextmanager
def locked(cloud: ServedNeighbours) -> Iterator[None]:
    """Hold the database as a foreign process might."""
    foreign = sqlite3.connect(cloud.database.location, isolation_level=None)
    try:
        foreign.execute("BEGIN IMMEDIATE")
        yield
        foreign.execute("ROLLBACK")
    finally:
        foreign.close()


async def test_only_admins_administer(
    cloud: ServedNeighbours, identity: httpx.AsyncClient, demo: dict[str, str]
) -> None:
    other = cloud.first.project_ids["admin"]
    for method, path, body in (
        ("GET", "/v3/users", None),
        ("POST", "/v3/users", {"user": {"name": "x"}}),
        ("GET", "/v3/projects", None),
        ("POST", "/v3/projects", {"project": {"name": "x"}}),
        ("GET", f"/v3/projects/{other}", None),
        ("DELETE", f"/v3/projects/{other}", None),
        ("GET", "/v3/roles", None),
        ("GET", "/v3/role_assignments", None),
        ("GET", "/v3/services", None),
    ):
        assert (await identity.request(method, path, json=body, headers=demo)).status_code == 403, path
        assert (await identity.request(method, path, json=body)).status_code == 401, path


async def test_everybody_sees_himself(
    cloud: ServedNeighbours, identity: httpx.AsyncClient, demo: dict[str, str]
) -> None:
    known = await cloud.identity.validate(demo["X-Auth-Token"])
    assert known is not None
    user = await identity.get(f"/v3/users/{known.user_id}", headers=demo)
    assert user.json()["user"]["name"] == "demo"
    assert "password" not in user.text.replace("password_expires_at", "")
    for path in ("/v3/auth/projects", f"/v3/users/{known.user_id}/projects"):
        projects = (await identity.get(path, headers=demo)).json()["projects"]
        assert [project["name"] for project in projects] == ["demo"]
    own = await identity.get(f"/v3/projects/{known.project_id}", headers=demo)
    assert own.json()["project"]["name"] == "demo"


async def test_one_s_own_password(cloud: ServedNeighbours, identity: httpx.AsyncClient, demo: dict[str, str]) -> None:
    known = await cloud.identity.validate(demo["X-Auth-Token"])
    assert known is not None
    path = f"/v3/users/{known.user_id}/password"
    wrong = {"user": {"original_password": "wrong", "password": "next"}}
    assert (await identity.post(path, json=wrong, headers=demo)).status_code == 401
    right = {"user": {"original_password": PASSWORDS["demo"], "password": "next"}}
    assert (await identity.post(path, json=right, headers=demo)).status_code == 204
    assert await cloud.identity.validate(demo["X-Auth-Token"]) is None
    assert (await identity.post("/v3/auth/tokens", json=sign_in_body("demo", "demo"))).status_code == 401
    assert (await identity.post("/v3/auth/tokens", json=sign_in_body("demo", "demo", "next"))).status_code == 201


async def test_names_are_unique(identity: httpx.AsyncClient, admin: dict[str, str]) -> None:
    for path, body in (
        ("/v3/users", {"user": {"name": "demo"}}),
        ("/v3/projects", {"project": {"name": "demo"}}),
        ("/v3/roles", {"role": {"name": "member"}}),
    ):
        assert (await identity.post(path, json=body, headers=admin)).status_code == 409
    first = (await identity.post("/v3/projects", json={"project": {"name": "one"}}, headers=admin)).json()["project"]
    renamed = await identity.patch(f"/v3/projects/{first['id']}", json={"project": {"name": "demo"}}, headers=admin)
    assert renamed.status_code == 409


async def test_the_default_project_by_either_name(
    cloud: ServedNeighbours, identity: httpx.AsyncClient, admin: dict[str, str]
) -> None:
    project, other = cloud.first.project_ids["demo"], cloud.first.project_ids["admin"]
    body: dict[str, Any] = {"user": {"name": "older", "project_id": project}}
    made = (await identity.post("/v3/users", json=body, headers=admin)).json()["user"]
    assert made["default_project_id"] == project
    path = f"/v3/users/{made['id']}"
    for change, expected in (
        ({"email": "o@example.org"}, project),
        ({"default_project_id": other}, other),
        ({"default_project_id": project, "project_id": project}, project),
    ):
        changed = await identity.patch(path, json={"user": change}, headers=admin)
        user = changed.json()["user"]
        assert (user["default_project_id"], user["project_id"]) == (expected, expected)
    without = (await identity.patch(path, json={"user": {"project_id": None}}, headers=admin)).json()["user"]
    assert not {"default_project_id", "project_id"} & set(without)


async def test_an_id_may_be_repeated_and_not_changed(identity: httpx.AsyncClient, admin: dict[str, str]) -> None:
    for noun in ("user", "project"):
        refused = await identity.post(f"/v3/{noun}s", json={noun: {"id": "mine", "name": "new"}}, headers=admin)
        assert (refused.status_code, f"{noun}.id" in refused.text) == (400, True)
        made = (await identity.post(f"/v3/{noun}s", json={noun: {"name": "new"}}, headers=admin)).json()[noun]
        for given, status in ((made["id"], 200), ("other", 400)):
            body = {noun: {"id": given, "name": "newer"}}
            changed = await identity.patch(f"/v3/{noun}s/{made['id']}", json=body, headers=admin)
            assert changed.status_code == status
            assert status == 400 or changed.json()[noun]["id"] == made["id"]


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v3/users", {"user": {}}, "user.name"),
        ("/v3/users", {"user": {"name": ""}}, "user.name"),
        ("/v3/users", {"user": {"name": "a\0b"}}, "user.name"),
        ("/v3/users", {"user": {"name": "x" * 256}}, "user.name"),
        ("/v3/users", {"user": {"name": "x", "enabled": "yes"}}, "user.enabled"),
        ("/v3/users", {"user": {"name": "x", "nonsense": 1}}, "nonsense"),
        ("/v3/users", {"user": {"name": "x", "domain_id": "other"}}, "user.domain_id"),
        ("/v3/users", {"user": {"name": "x", "default_project_id": "absent"}}, "user.default_project_id"),
        ("/v3/users", {"user": {"name": "x", "project_id": "absent"}}, "user.default_project_id"),
        ("/v3/users", {"user": {"name": "x", "project_id": "a", "default_project_id": "b"}}, "user.project_id"),
        ("/v3/projects", {"project": {"name": 7}}, "project.name"),
        ("/v3/projects", {"project": {"name": "x" * 65}}, "project.name"),
        ("/v3/projects", {"project": {"name": "x", "parent_id": "other"}}, "project.parent_id"),
        ("/v3/projects", {"project": {"name": "x", "tags": ["t"]}}, "project.tags"),
        ("/v3/projects", [], "object"),
        ("/v3/roles", {"role": {"name": "x", "domain_id": "default"}}, "role.domain_id"),
    ],
)
async def test_bad_fields_are_named(
    identity: httpx.AsyncClient, admin: dict[str, str], path: str, body: Any, field: str
) -> None:
    response = await identity.post(path, json=body, headers=admin)
    assert response.status_code == 400
    assert field in response.json()["error"]["message"]


async def test_what_is_not_there(identity: httpx.AsyncClient, admin: dict[str, str]) -> None:
    for path in (
        "users/x",
        "projects/x",
        "roles/x",
        "domains/x",
        "services/x",
        "endpoints/x",
        "users/%00",
        "users/..%2f",
    ):
        assert (await identity.get(f"/v3/{path}", headers=admin)).status_code == 404
    for path in ("users/x", "projects/x", "roles/x"):
        assert (await identity.delete(f"/v3/{path}", headers=admin)).status_code == 404
    for path in ("users", "projects"):
        assert (await identity.get(f"/v3/{path}?name=x", headers=admin)).json()[path] == []


async def test_default_roles_stay(identity: httpx.AsyncClient, admin: dict[str, str]) -> None:
    roles = {role["name"]: role["id"] for role in (await identity.get("/v3/roles", headers=admin)).json()["roles"]}
    assert (await identity.delete(f"/v3/roles/{roles['member']}", headers=admin)).status_code == 403
    made = (await identity.post("/v3/roles", json={"role": {"name": "auditor"}}, headers=admin)).json()["role"]
    assert (await identity.delete(f"/v3/roles/{made['id']}", headers=admin)).status_code == 204


async def test_effective_assignments(
    cloud: ServedNeighbours, identity: httpx.AsyncClient, admin: dict[str, str]
) -> None:
    project = cloud.first.project_ids["demo"]
    path = f"/v3/role_assignments?include_names&scope.project.id={project}"
    given = (await identity.get(path, headers=admin)).json()["role_assignments"]
    assert [item["role"]["name"] for item in given] == ["member"]
    effective = (await identity.get(f"{path}&effective", headers=admin)).json()["role_assignments"]
    assert {item["role"]["name"] for item in effective} == {"member", "reader"}
    system = (await identity.get("/v3/role_assignments?scope.system=all", headers=admin)).json()["role_assignments"]
    assert [item["scope"] for item in system] == [{"system": {"all": True}}]


async def test_a_disabled_project_has_no_tokens(
    cloud: ServedNeighbours, identity: httpx.AsyncClient, admin: dict[str, str], demo: dict[str, str]
) -> None:
    path = f"/v3/projects/{cloud.first.project_ids['demo']}"
    await identity.patch(path, json={"project": {"enabled": False}}, headers=admin)
    assert await cloud.identity.validate(demo["X-Auth-Token"]) is None
    assert (await identity.post("/v3/auth/tokens", json=sign_in_body("demo", "demo"))).status_code == 401


async def test_the_first_users_are_made_once(
    cloud: ServedNeighbours, identity: httpx.AsyncClient, admin: dict[str, str], demo: dict[str, str]
) -> None:
    known = await cloud.identity.validate(demo["X-Auth-Token"])
    assert known is not None
    assert set(cloud.first.passwords) == {"admin", "demo"}
    assert PASSWORDS["admin"] not in repr(cloud.first)
    await identity.delete(f"/v3/users/{known.user_id}", headers=admin)
    again = await ensure_bootstrap(cloud.database, cloud.identity.passwords, cloud.clock)
    assert again.passwords == {}
    assert again.project_ids == cloud.first.project_ids
    users = (await identity.get("/v3/users", headers=admin)).json()["users"]
    assert [user["name"] for user in users] == ["admin"]


async def test_a_locked_database(cloud: ServedNeighbours, identity: httpx.AsyncClient, admin: dict[str, str]) -> None:
    body = {"project": {"name": "later"}}
    with locked(cloud):
        response = await identity.post("/v3/projects", json=body, headers=admin)
        assert response.status_code == 503
        assert response.headers["Retry-After"]
    assert (await identity.post("/v3/projects", json=body, headers=admin)).status_code == 201


async def test_an_image_whose_row_cannot_be_written_leaves_no_file(
    cloud: ServedNeighbours, identity: httpx.AsyncClient, images: httpx.AsyncClient, demo: dict[str, str]
) -> None:
    said = {"name": "x", "disk_format": "raw", "container_format": "bare"}
    image_id = (await images.post("/v2/images", json=said, headers=demo)).json()["id"]
    headers = {**demo, "Content-Type": "application/octet-stream"}
    with locked(cloud):
        response = await images.put(f"/v2/images/{image_id}/file", content=b"x", headers=headers)
        assert response.status_code == 503
    assert [path for path in cloud.images.settings.directory.rglob("*") if path.is_file()] == []
    response = await images.put(f"/v2/images/{image_id}/file", content=b"x", headers=headers)
    assert response.status_code == 204
