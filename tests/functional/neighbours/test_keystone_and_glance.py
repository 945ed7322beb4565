"""A cloud with a real Keystone and a real Glance, as a configuration file names them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from msgspec.structs import replace

from skep.config import load
from skep.contracts.eventually import PATIENCE, eventually
from skep.contracts.http_cloud import serving_cloud
from skep.domain.errors import Misconfigured, Unavailable
from skep.processes.all_in_one import AllInOneCloud, make_cloud
from skep.processes.ports import free_port
from skep_lab.neighbours import IMAGE, PART, PASSWORD, RealNeighbours, real_neighbours, sign_in
from tests.support.openstack import client_program

pytestmark = [pytest.mark.needs_part(PART), pytest.mark.timeout(900)]


class Both:
    """A cloud, and the services beside it."""

    def __init__(self, neighbours: RealNeighbours, cloud: AllInOneCloud, file: Path) -> None:
        self.neighbours = neighbours
        self.cloud = cloud
        self.file = file

    async def openstack(self, *arguments: str, more: dict[str, str] | None = None) -> Any:
        """Run the real client as `demo`, who finds the compute API through the catalogue."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("OS_")}
        environment = {**kept, **(self.neighbours.environment("demo", "demo") if more is None else more)}
        process = await asyncio.create_subprocess_exec(
            client_program(),
            *arguments,
            *(() if "delete" in arguments else ("-f", "json")),
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, errors = await asyncio.wait_for(process.communicate(), PATIENCE * 3)
        assert process.returncode == 0, errors.decode()
        return msgspec.json.decode(out) if out else None

    async def keystone(self, method: str, path: str, body: Any = None, *, token: str) -> httpx.Response:
        """Ask Keystone as a user."""
        async with httpx.AsyncClient(timeout=PATIENCE) as client:
            headers = {"X-Auth-Token": token}
            return await client.request(method, f"{self.neighbours.auth_url}{path}", headers=headers, json=body)

    async def other_project(self) -> tuple[str, str]:
        """Make a project `others` with a member `other`; return the ids of project and user."""
        admin = await self.token("admin", "admin")
        project = {"project": {"name": "others", "domain_id": "default"}}
        project_id = (await self.keystone("POST", "/projects", project, token=admin)).json()["project"]["id"]
        user = {"user": {"name": "other", "domain_id": "default", "password": PASSWORD}}
        user_id = (await self.keystone("POST", "/users", user, token=admin)).json()["user"]["id"]
        await self.grant(project_id, user_id, "member")
        return str(project_id), str(user_id)

    async def grant(self, project_id: str, user_id: str, role: str, method: str = "PUT") -> None:
        """Give a user a role in a project, or take it away."""
        admin = await self.token("admin", "admin")
        [found] = (await self.keystone("GET", f"/roles?name={role}", token=admin)).json()["roles"]
        path = f"/projects/{project_id}/users/{user_id}/roles/{found['id']}"
        (await self.keystone(method, path, token=admin)).raise_for_status()

    async def token(self, user: str = "demo", project: str = "demo") -> str:
        async with httpx.AsyncClient(base_url=self.neighbours.auth_url, timeout=PATIENCE) as keystone:
            return await sign_in(keystone, user, project)

    async def status(
        self, token: str, path: str = "/servers", method: str = "GET", body: Any = None, service: str | None = None
    ) -> int:
        headers = {"X-Auth-Token": token} | ({} if service is None else {"X-Service-Token": service})
        async with httpx.AsyncClient(timeout=PATIENCE) as client:
            url = f"{self.cloud.api_url}{path}"
            return (await client.request(method, url, headers=headers, json=body)).status_code


def _configured(file: Path, root: Path, neighbours: RealNeighbours, port: int, password: str = PASSWORD) -> None:
    file.write_text(f"""
[state]
directory = "{root / "state"}"
[api]
port = {port}
[identity]
kind = "keystone"
auth_url = "{neighbours.auth_url}"
username = "skep"
password = "{password}"
timeout = 2.0
retries = 1
token_cache_seconds_for_changes = 0
[images]
kind = "glance"
[conductor]
lease_seconds = 2.0
resend_seconds = 0.3
""")


@pytest.fixture
async def both(tmp_path: Path) -> AsyncIterator[Both]:
    port = free_port()
    async with real_neighbours(tmp_path / "neighbours", f"http://127.0.0.1:{port}/v2.1") as neighbours:
        file = tmp_path / "skep.toml"
        _configured(file, tmp_path, neighbours, port)
        async with serving_cloud(load(file, {}).config, cells=1, hosts=1) as cloud:
            yield Both(neighbours, cloud, file)


async def test_a_cloud_beside_keystone_and_glance(both: Both, tmp_path: Path) -> None:
    # A member of Keystone builds a server from an image of Glance; nothing of the embedded services is made.
    made = await both.openstack("server", "create", "--image", IMAGE, "--flavor", "m1.tiny", "--wait", "one")
    assert made["status"] == "ACTIVE"
    assert [server["Name"] for server in await both.openstack("server", "list")] == ["one"]
    assert both.cloud.http.ports.keys() == {"api"}
    assert not both.cloud.clouds_yaml.exists()

    # An application credential is good for what its access rules name, and for nothing else.
    rules = tmp_path / "rules.json"
    rules.write_text('[{"service": "compute", "method": "GET", "path": "/v2.1/servers/{id}"}]')
    credential = await both.openstack("application credential", "create", "one", "--access-rules", str(rules))
    signed = {
        "OS_AUTH_URL": both.neighbours.auth_url,
        "OS_AUTH_TYPE": "v3applicationcredential",
        "OS_APPLICATION_CREDENTIAL_ID": credential["id"] if "id" in credential else credential["ID"],
        "OS_APPLICATION_CREDENTIAL_SECRET": credential["secret"] if "secret" in credential else credential["Secret"],
    }
    bound = (await both.openstack("token", "issue", more=signed))["id"]
    assert await both.status(bound, f"/servers/{made['id']}") == 200
    assert await both.status(bound, "/servers") == 401
    assert await both.status(bound, f"/servers/{made['id']}", "DELETE") == 401

    await _is_asked_by_a_service(both, bound)
    _, user_id = await both.other_project()
    await _keeps_to_trusts(both, user_id, made["id"])

    # A token that was revoked changes nothing any more; reading ends with what is remembered of it.
    token = await both.token()
    assert await both.status(token) == 200
    headers = {"X-Auth-Token": token, "X-Subject-Token": token}
    async with httpx.AsyncClient(timeout=PATIENCE) as client:
        await client.delete(f"{both.neighbours.auth_url}/auth/tokens", headers=headers)
    assert await both.status(token, f"/servers/{made['id']}", "DELETE") == 401

    # A Keystone that hangs is asked again; one that stays away is a 503, and back again all goes on.
    fresh = await both.token()
    both.neighbours.keystone.pause()
    try:
        assert await both.status(fresh) == 503
    finally:
        both.neighbours.keystone.resume()

    async def served() -> bool:
        return await both.status(fresh) == 200

    await eventually(served, "Keystone answers again")

    # What cannot work is said at the start, by the name of the setting.
    wrong = tmp_path / "wrong.toml"
    _configured(wrong, tmp_path / "wrong", both.neighbours, 0, password="wrong")
    with pytest.raises(Misconfigured, match=r"identity\.username, identity\.password"):
        await make_cloud(load(wrong, {}).config, cells=1, hosts=1).start()
    both.neighbours.keystone.stop()
    config = load(both.file, {}).config
    elsewhere = replace(
        config, state=replace(config.state, directory=str(tmp_path / "later")), api=replace(config.api, port=0)
    )
    with pytest.raises(Unavailable, match="does not answer"):
        await make_cloud(elsewhere, cells=1, hosts=1).start()


async def _is_asked_by_a_service(both: Both, bound: str) -> None:
    # A service that works on the user's request shows its own token beside it: the rules were kept where he asked.
    service = await both.token("skep", "service")
    assert await both.status(bound, service=service) == 200
    assert await both.status(bound, service=await both.token()) == 401
    assert await both.status(await both.token(), service="forged") == 401


async def _trusted(both: Both, trust: str, user: str = "other") -> httpx.Response:
    """Sign in as a user in whose hands a trust is."""
    password = {"user": {"name": user, "password": PASSWORD, "domain": {"id": "default"}}}
    body = {
        "auth": {
            "identity": {"methods": ["password"], "password": password},
            "scope": {"OS-TRUST:trust": {"id": trust}},
        }
    }
    async with httpx.AsyncClient(timeout=PATIENCE) as client:
        return await client.post(f"{both.neighbours.auth_url}/auth/tokens", json=body)


async def _trust(both: Both, trustee: str, *roles: str) -> httpx.Response:
    """Let another user do in the project of `demo` what these roles allow."""
    token = await both.token()
    async with httpx.AsyncClient(timeout=PATIENCE) as client:
        headers = {"X-Auth-Token": token, "X-Subject-Token": token}
        known = (await client.get(f"{both.neighbours.auth_url}/auth/tokens", headers=headers)).json()["token"]
    trust = {
        "trustor_user_id": known["user"]["id"],
        "trustee_user_id": trustee,
        "project_id": known["project"]["id"],
        "impersonation": False,
        "roles": [{"name": role} for role in roles],
    }
    return await both.keystone("POST", "/OS-TRUST/trusts", {"trust": trust}, token=token)


async def _keeps_to_trusts(both: Both, trustee: str, server: str) -> None:
    # Whom `demo` trusts does in its project what the roles of the trust allow, and no more.
    path = f"/servers/{server}"
    assert await both.status(await both.token("other", "others"), path) == 404
    trusts, tokens = {}, {}
    for role in ("member", "reader"):
        made = await _trust(both, trustee, role)
        assert made.status_code == 201, made.text
        trusts[role] = made.json()["trust"]["id"]
        tokens[role] = (await _trusted(both, trusts[role])).headers["X-Subject-Token"]
        assert await both.status(tokens[role], path) == 200
        assert await both.status(tokens[role], "/os-hypervisors") == 403
    changed = {"metadata": {"trusted": "yes"}}
    assert await both.status(tokens["reader"], f"{path}/metadata", "POST", changed) == 403
    assert await both.status(tokens["member"], f"{path}/metadata", "POST", changed) == 200

    # Nobody trusts another with what he may not do himself, or with nothing.
    for roles in (("admin",), ()):
        assert (await _trust(both, trustee, *roles)).is_client_error

    # A trust that is gone is worth nothing any more, nor is its token.
    deleted = await both.keystone("DELETE", f"/OS-TRUST/trusts/{trusts['member']}", token=await both.token())
    assert deleted.status_code == 204, deleted.text
    assert await both.status(tokens["member"], f"{path}/metadata", "POST", changed) == 401
    assert (await _trusted(both, trusts["member"])).status_code >= 400

    # A trust is worth what who gave it may do: without the role it is refused.
    granted = (await _trust(both, trustee, "member")).json()["trust"]
    token = (await _trusted(both, granted["id"])).headers["X-Subject-Token"]
    assert await both.status(token, f"{path}/metadata", "POST", changed) == 200
    await both.grant(granted["project_id"], granted["trustor_user_id"], "member", "DELETE")
    assert await both.status(token, f"{path}/metadata", "POST", changed) == 401
    await both.grant(granted["project_id"], granted["trustor_user_id"], "member")

    async def back() -> bool:
        return await both.status(await both.token()) == 200

    await eventually(back, "tokens of a later second than the loss of the role are good")
