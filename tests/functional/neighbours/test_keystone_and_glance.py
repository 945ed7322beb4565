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
from skep_lab.neighbours import IMAGE, IMAGE_BYTES, PART, PASSWORD, RealNeighbours, real_neighbours, sign_in
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

    async def glance(self, method: str, path: str, *, token: str, **more: Any) -> httpx.Response:
        """Ask Glance as a user."""
        async with httpx.AsyncClient(timeout=PATIENCE) as client:
            headers = {"X-Auth-Token": token, **more.pop("headers", {})}
            url = f"{self.neighbours.glance.url}/v2/images{path}"
            return await client.request(method, url, headers=headers, **more)

    async def compute(
        self, method: str, path: str, body: Any = None, *, token: str, version: str = "2.1"
    ) -> httpx.Response:
        """Ask the compute API as a user."""
        async with httpx.AsyncClient(timeout=PATIENCE) as client:
            headers = {"X-Auth-Token": token, "OpenStack-API-Version": f"compute {version}"}
            return await client.request(method, f"{self.cloud.api_url}{path}", headers=headers, json=body)

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

    async def calm(self, uuid: str, token: str) -> None:
        """Wait until a server runs and nothing is done to it."""

        async def is_so() -> bool:
            server = (await self.compute("GET", f"/servers/{uuid}", token=token)).json()["server"]
            return (server["status"], server["OS-EXT-STS:task_state"]) == ("ACTIVE", None)

        await eventually(is_so, "the server is ACTIVE")

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
[compute.images]
auth_url = "{neighbours.auth_url}"
username = "skep"
password = "{PASSWORD}"
store = true
[compute.fake]
spawn_delay = 0.0
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
    project_id, user_id = await both.other_project()
    await _keeps_to_trusts(both, user_id, made["id"])
    await _builds_from_images_of_others(both, project_id)

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


async def _image(both: Both, token: str, **said: str) -> str:
    """Make an image with bytes."""
    new = {"disk_format": "raw", "container_format": "bare", **said}
    made = await both.glance("POST", "", token=token, json=new)
    assert made.status_code == 201, made.text
    image_id = str(made.json()["id"])
    kind = {"Content-Type": "application/octet-stream"}
    stored = await both.glance("PUT", f"/{image_id}/file", token=token, content=IMAGE_BYTES, headers=kind)
    assert stored.status_code == 204, stored.text
    return image_id


async def _builds_from_images_of_others(both: Both, project_id: str) -> None:
    demo, other = await both.token(), await both.token("other", "others")
    image_id = await _image(both, demo, name="shared", visibility="shared")
    body = {"server": {"name": "of-others", "imageRef": image_id, "flavorRef": "1", "networks": "none"}}

    async def build() -> httpx.Response:
        return await both.compute("POST", "/servers", body, token=other, version="2.37")

    # Without membership there is no such image.
    assert (await both.glance("GET", f"/{image_id}", token=other)).status_code == 404
    assert (await build()).status_code == 400

    # A member has it by its id, as Glance shows it, and in lists once it has accepted.
    assert (await both.glance("POST", f"/{image_id}/members", token=demo, json={"member": project_id})).is_success
    shown = await both.glance("GET", f"/{image_id}", token=other)
    assert (await build()).status_code == (202 if shown.status_code == 200 else 400)
    assert "shared" not in (await both.compute("GET", "/images", token=other)).text
    answered = {"status": "accepted"}
    assert (await both.glance("PUT", f"/{image_id}/members/{project_id}", token=other, json=answered)).is_success
    assert "shared" in (await both.compute("GET", "/images", token=other)).text
    built = await build()
    assert built.status_code == 202, built.text
    uuid = str(built.json()["server"]["id"])
    await both.calm(uuid, other)

    # A protected image is one to build from, and nobody deletes it.
    protect = [{"op": "replace", "path": "/protected", "value": True}]
    patch = {"Content-Type": "application/openstack-images-v2.1-json-patch"}
    changed = await both.glance("PATCH", f"/{image_id}", token=demo, json=protect, headers=patch)
    assert changed.status_code == 200, changed.text
    assert (await both.compute("DELETE", f"/images/{image_id}", token=demo)).status_code == 403
    assert (await build()).status_code == 202

    await _snapshots_are_described(both, uuid, other, project_id, image_id)

    # Who is a member no more builds no more.
    assert (await both.glance("DELETE", f"/{image_id}/members/{project_id}", token=demo)).status_code == 204

    async def gone() -> bool:
        return (await build()).status_code == 400

    await eventually(gone, "the image is not remembered any more")


async def _snapshots_are_described(both: Both, uuid: str, token: str, project_id: str, base: str) -> None:
    admin = await both.token("admin", "admin")
    for taker, visibility in ((token, "private"), (admin, "shared")):
        body = {"createImage": {"name": "of-it", "metadata": {"colour": "blue"}}}
        made = await both.compute("POST", f"/servers/{uuid}/action", body, token=taker, version="2.45")
        assert made.status_code == 202, made.text
        await both.calm(uuid, token)
        image = (await both.glance("GET", f"/{made.json()['image_id']}", token=taker)).json()
        assert (image["status"], image["visibility"], image["size"]) == ("active", visibility, len(IMAGE_BYTES))
        assert (image["image_type"], image["instance_uuid"], image["base_image_ref"]) == ("snapshot", uuid, base)
        assert (image["owner_id"], image["image_location"], image["image_state"]) == (
            project_id,
            "snapshot",
            "available",
        )
        assert (image["owner_user_name"], image["owner_project_name"]) == ("other", "others")
        assert set(image["boot_roles"].split(",")) == {"member", "reader"}
        assert image["colour"] == "blue"
        if taker is admin:
            assert image["instance_owner"] == project_id
        else:
            assert image["owner"] == project_id
            assert "instance_owner" not in image
