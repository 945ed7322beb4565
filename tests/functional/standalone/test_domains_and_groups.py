"""Domains, groups, and roles that come by them: who is let in where, and when it ends."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from skep.contracts.neighbours.served import ServedNeighbours, token

PASSWORD = "a password for tests"


class Administered:
    """An admin's hands."""

    def __init__(self, client: httpx.AsyncClient, admin: str) -> None:
        self._client = client
        self._headers = {"X-Auth-Token": admin}

    async def ask(self, method: str, path: str, body: Any = None) -> httpx.Response:
        return await self._client.request(method, f"/v3{path}", json=body, headers=self._headers)

    async def make(self, noun: str, **fields: Any) -> str:
        made = await self.ask("POST", f"/{noun}s", {noun: fields})
        assert made.status_code == 201, made.text
        return str(made.json()[noun]["id"])

    async def done(self, method: str, path: str, body: Any = None) -> Any:
        answer = await self.ask(method, path, body)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    async def role(self, name: str) -> str:
        return str((await self.done("GET", f"/roles?name={name}"))["roles"][0]["id"])


@pytest.fixture
async def admin(identity: httpx.AsyncClient) -> Administered:
    return Administered(identity, await token(identity, "admin", "admin"))


async def _sign_in(client: httpx.AsyncClient, name: str, domain: str, scope: Any) -> httpx.Response:
    user = {"name": name, "domain": {"name": domain}, "password": PASSWORD}
    proof = {"methods": ["password"], "password": {"user": user}}
    return await client.post("/v3/auth/tokens", json={"auth": {"identity": proof, "scope": scope}})


async def test_a_name_belongs_to_one_user_of_each_domain(identity: httpx.AsyncClient, admin: Administered) -> None:
    domain = await admin.make("domain", name="science")
    project = await admin.make("project", name="demo", domain_id=domain)
    user = await admin.make("user", name="demo", password=PASSWORD, domain_id=domain)
    assert (await admin.ask("POST", "/users", {"user": {"name": "demo", "domain_id": domain}})).status_code == 409
    assert {one["domain_id"] for one in (await admin.done("GET", "/users?name=demo"))["users"]} == {"default", domain}
    assert [one["id"] for one in (await admin.done("GET", f"/users?domain_id={domain}"))["users"]] == [user]
    await admin.done("PUT", f"/projects/{project}/users/{user}/roles/{await admin.role('member')}")
    scope = {"project": {"name": "demo", "domain": {"id": domain}}}
    answer = await _sign_in(identity, "demo", "science", scope)
    assert answer.status_code == 201, answer.text
    shown = answer.json()["token"]
    assert shown["user"]["domain"] == {"id": domain, "name": "science"}
    assert (shown["project"]["id"], shown["project"]["domain"]["name"]) == (project, "science")
    # The user of that name in the first domain has another password.
    assert (await _sign_in(identity, "demo", "Default", scope)).status_code == 401
    assert (await _sign_in(identity, "demo", "nowhere", scope)).status_code == 401


async def test_a_disabled_domain_lets_nobody_in(identity: httpx.AsyncClient, admin: Administered) -> None:
    domain = await admin.make("domain", name="science")
    user = await admin.make("user", name="mary", password=PASSWORD, domain_id=domain)
    inside = await admin.make("project", name="inside", domain_id=domain)
    for project in (inside, await admin.make("project", name="outside")):
        await admin.done("PUT", f"/projects/{project}/users/{user}/roles/{await admin.role('member')}")
    scope = {"project": {"id": inside}}
    held = (await _sign_in(identity, "mary", "science", scope)).headers["X-Subject-Token"]
    headers = {"X-Auth-Token": held, "X-Subject-Token": held}
    assert (await identity.get("/v3/auth/tokens", headers=headers)).status_code == 200
    assert (await admin.ask("DELETE", f"/domains/{domain}")).status_code == 403
    await admin.done("PATCH", f"/domains/{domain}", {"domain": {"enabled": False}})
    assert (await identity.get("/v3/auth/tokens", headers=headers)).status_code == 401
    for asked in (scope, {"project": {"name": "outside", "domain": {"name": "Default"}}}, "unscoped"):
        assert (await _sign_in(identity, "mary", "science", asked)).status_code == 401
    await admin.done("DELETE", f"/domains/{domain}")
    for path in (f"/domains/{domain}", f"/users/{user}", f"/projects/{inside}"):
        assert (await admin.ask("GET", path)).status_code == 404
    for method, body in (("DELETE", None), ("PATCH", {"domain": {"enabled": False}})):
        assert (await admin.ask(method, "/domains/default", body)).status_code == 403


async def test_members_have_what_their_group_is_given(identity: httpx.AsyncClient, admin: Administered) -> None:
    project = await admin.make("project", name="shared")
    group = await admin.make("group", name="readers")
    user = await admin.make("user", name="mary", password=PASSWORD)
    await admin.done("PUT", f"/projects/{project}/groups/{group}/roles/{await admin.role('reader')}")
    scope = {"project": {"id": project}}
    assert (await _sign_in(identity, "mary", "Default", scope)).status_code == 401
    await admin.done("PUT", f"/groups/{group}/users/{user}")
    answer = await _sign_in(identity, "mary", "Default", scope)
    assert [one["name"] for one in answer.json()["token"]["roles"]] == ["reader"]
    held = {"X-Auth-Token": answer.headers["X-Subject-Token"]}
    seen = (await identity.get("/v3/auth/projects", headers=held)).json()["projects"]
    assert [one["id"] for one in seen] == [project]
    assert (await identity.get(f"/v3/users/{user}/groups", headers=held)).json()["groups"][0]["name"] == "readers"
    await admin.done("DELETE", f"/groups/{group}/users/{user}")
    assert (await identity.get("/v3/auth/projects", headers=held)).status_code == 401
    assert (await admin.ask("DELETE", f"/groups/{group}/users/{user}")).status_code == 404


async def test_what_is_inherited_counts_in_projects_and_not_in_their_domain(
    identity: httpx.AsyncClient, admin: Administered
) -> None:
    domain = await admin.make("domain", name="science")
    project = await admin.make("project", name="physics", domain_id=domain)
    user = await admin.make("user", name="mary", password=PASSWORD)
    role = await admin.role("member")
    place = f"/OS-INHERIT/domains/{domain}/users/{user}/roles"
    await admin.done("PUT", f"{place}/{role}/inherited_to_projects")
    assert [one["id"] for one in (await admin.done("GET", f"{place}/inherited_to_projects"))["roles"]] == [role]
    assert (await admin.ask("GET", f"/domains/{domain}/users/{user}/roles/{role}")).status_code == 404
    assert (await _sign_in(identity, "mary", "Default", {"project": {"id": project}})).status_code == 201
    assert (await _sign_in(identity, "mary", "Default", {"domain": {"id": domain}})).status_code == 401
    await admin.done("PUT", f"/domains/{domain}/users/{user}/roles/{role}")
    of_domain = await _sign_in(identity, "mary", "Default", {"domain": {"name": "science"}})
    assert of_domain.status_code == 201
    assert of_domain.json()["token"]["domain"] == {"id": domain, "name": "science"}
    assert "project" not in of_domain.json()["token"]
    seen = await identity.get("/v3/auth/domains", headers={"X-Auth-Token": of_domain.headers["X-Subject-Token"]})
    assert [one["id"] for one in seen.json()["domains"]] == [domain]
    await admin.done("DELETE", f"{place}/{role}/inherited_to_projects")
    assert (await _sign_in(identity, "mary", "Default", {"project": {"id": project}})).status_code == 401


async def test_the_list_of_assignments(identity: httpx.AsyncClient, admin: Administered) -> None:
    domain = await admin.make("domain", name="science")
    project = await admin.make("project", name="physics", domain_id=domain)
    group = await admin.make("group", name="staff")
    users = [await admin.make("user", name=name) for name in ("mary", "paul")]
    for user in users:
        await admin.done("PUT", f"/groups/{group}/users/{user}")
    role = await admin.role("member")
    await admin.done("PUT", f"/OS-INHERIT/domains/{domain}/groups/{group}/roles/{role}/inherited_to_projects")

    async def listed(query: str) -> list[Any]:
        return list((await admin.done("GET", f"/role_assignments?{query}"))["role_assignments"])

    (given,) = await listed(f"group.id={group}&include_names")
    assert given["scope"] == {"domain": {"id": domain, "name": "science"}, "OS-INHERIT:inherited_to": "projects"}
    assert given["group"]["domain"] == {"id": "default", "name": "Default"}
    assert given["links"]["assignment"].endswith(f"/groups/{group}/roles/{role}/inherited_to_projects")
    assert await listed(f"scope.domain.id={domain}&scope.OS-INHERIT:inherited_to=projects") != []
    effective = await listed(f"effective&scope.project.id={project}&include_names=1")
    assert {(one["user"]["name"], one["role"]["name"]) for one in effective} == {
        (name, role) for name in ("mary", "paul") for role in ("member", "reader")
    }
    assert len(await listed(f"effective&user.id={users[0]}")) == 2
    assert (await admin.ask("GET", f"/role_assignments?effective&group.id={group}")).status_code == 400
    system = await listed("scope.system=all")
    assert [one["scope"] for one in system] == [{"system": {"all": True}}]


async def test_a_group_may_administer_the_system(identity: httpx.AsyncClient, admin: Administered) -> None:
    group = await admin.make("group", name="operators")
    user = await admin.make("user", name="mary", password=PASSWORD)
    await admin.done("PUT", f"/groups/{group}/users/{user}")
    role = await admin.role("admin")
    await admin.done("PUT", f"/system/groups/{group}/roles/{role}")
    answer = await _sign_in(identity, "mary", "Default", {"system": {"all": True}})
    assert answer.json()["token"]["system"] == {"all": True}
    await admin.done("DELETE", f"/groups/{group}")
    assert (await _sign_in(identity, "mary", "Default", {"system": {"all": True}})).status_code == 401


async def test_roles_change_but_for_those_of_every_cloud(admin: Administered) -> None:
    role, member, reader = (
        await admin.make("role", name="auditor"),
        await admin.role("member"),
        await admin.role("reader"),
    )
    changed = await admin.done("PATCH", f"/roles/{role}", {"role": {"name": "inspector", "description": "looks"}})
    assert (changed["role"]["name"], changed["role"]["description"]) == ("inspector", "looks")
    assert (await admin.ask("PATCH", f"/roles/{role}", {"role": {"name": "member"}})).status_code == 409
    assert (await admin.ask("PATCH", f"/roles/{member}", {"role": {"name": "x"}})).status_code == 403
    await admin.done("PATCH", f"/roles/{member}", {"role": {"description": "uses"}})
    inferred = (await admin.done("GET", f"/roles/{member}/implies"))["role_inference"]
    assert [one["name"] for one in inferred["implies"]] == ["reader"]
    assert len((await admin.done("GET", "/role_inferences"))["role_inferences"]) == 3
    assert (await admin.ask("GET", f"/roles/{member}/implies/{reader}")).status_code == 200
    assert (await admin.ask("PUT", f"/roles/{role}/implies/{reader}")).status_code == 403


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/groups", {"group": {"name": "x", "domain_id": "nowhere"}}),
        ("POST", "/users", {"user": {"name": "x", "domain_id": "nowhere"}}),
        ("POST", "/projects", {"project": {"name": "x", "domain_id": "nowhere"}}),
        ("POST", "/projects", {"project": {"name": "x", "domain_id": "default", "parent_id": "nowhere"}}),
        ("POST", "/domains", {"domain": {}}),
        ("POST", "/domains", {"domain": {"name": "x", "options": {"immutable": True}}}),
        ("POST", "/groups", {"group": {"name": "a\nb"}}),
        ("POST", "/roles", {"role": {"name": "x", "domain_id": "default"}}),
    ],
)
async def test_what_is_wrong_is_named(admin: Administered, method: str, path: str, body: Any) -> None:
    noun = next(iter(body))
    answer = await admin.ask(method, path, body)
    assert answer.status_code == 400
    assert noun in answer.json()["error"]["message"]


async def test_moving_to_another_domain_is_refused(cloud: ServedNeighbours, admin: Administered) -> None:
    domain = await admin.make("domain", name="science")
    group = await admin.make("group", name="staff")
    user, project = await admin.make("user", name="mary"), cloud.first.project_ids["demo"]
    for noun, id_ in (("group", group), ("user", user), ("project", project)):
        answer = await admin.ask("PATCH", f"/{noun}s/{id_}", {noun: {"domain_id": domain}})
        assert answer.status_code == 400, noun
        assert f"{noun}.domain_id" in answer.json()["error"]["message"]
        same = await admin.ask("PATCH", f"/{noun}s/{id_}", {noun: {"domain_id": "default"}})
        assert same.status_code == 200, same.text


async def test_an_older_release_takes_no_name_of_another_domain(cloud: ServedNeighbours, admin: Administered) -> None:
    """0.7.0 looks for a user by the column alone: what it finds there for a name is of the first domain."""
    domain = await admin.make("domain", name="science")
    await admin.make("user", name="mary", domain_id=domain)
    found = await cloud.database.read(
        lambda connection: connection.exec_driver_sql("SELECT name FROM users WHERE name = 'mary'").all()
    )
    assert found == []


@pytest.mark.parametrize("noun", ["domain", "project", "user", "group", "role"])
async def test_lists_are_narrowed_by_parts_of_names(admin: Administered, noun: str) -> None:
    for name in ("Blue sky", "sky blue", "grey"):
        await admin.make(noun, name=name)

    async def found(query: str) -> set[str]:
        return {one["name"] for one in (await admin.done("GET", f"/{noun}s?{query}"))[f"{noun}s"]}

    for query, wanted in (
        ("name__contains=sky", {"Blue sky", "sky blue"}),
        ("name__contains=SKY", set()),
        ("name__icontains=SKY", {"Blue sky", "sky blue"}),
        ("name__startswith=Blue", {"Blue sky"}),
        ("name__istartswith=SKY", {"sky blue"}),
        ("name__endswith=blue", {"sky blue"}),
        ("name__iendswith=SKY", {"Blue sky"}),
        ("name__contains=sky&name__istartswith=b", {"Blue sky"}),
        ("name=grey&name__contains=re", {"grey"}),
        ("name=grey&name__contains=sky", set()),
    ):
        assert await found(query) == wanted, query
    assert {"Blue sky", "sky blue", "grey"} <= await found("")
