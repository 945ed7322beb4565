"""A cloud whose quotas are the unified limits of a real Keystone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from skep.config import load
from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import ComputeSession, serving_cloud
from skep.contracts.loopback import plain_client
from skep.domain.errors import Misconfigured
from skep.processes.ports import free_port
from skep_lab.neighbours.identity_and_images import PART, RealNeighbours, real_neighbours, sign_in
from skep_lab.neighbours.programs import PASSWORD

pytestmark = [pytest.mark.needs_part(PART), pytest.mark.timeout(900)]

CACHE_SECONDS = 0.5
TOO_MANY = "Quota exceeded for {0}: Requested {1}, but already used {2} of {3} {0}"
TINY_MIB = 512
REGISTERED = {"servers": 1, "class:VCPU": 20, "class:MEMORY_MB": 2 * TINY_MIB, "server_groups": 3}


class LimitsOfKeystone:
    """What an administrator does with limits over Keystone's API."""

    def __init__(self, client: httpx.AsyncClient, endpoint: dict[str, Any]) -> None:
        self.client = client
        self.endpoint_id = str(endpoint["id"])
        self._of = {"service_id": endpoint["service_id"], "region_id": endpoint["region_id"]}

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request that has to succeed."""
        answer = await self.client.request(method, path, json=body)
        assert answer.is_success, (method, path, answer.text)
        return answer.json() if answer.content else None

    async def register(self, resource: str, limit: int, **of: str) -> str:
        """Register a limit for all projects; return its id."""
        wanted = {**self._of, **of, "resource_name": resource, "default_limit": limit}
        made = await self.ask("POST", "/registered_limits", {"registered_limits": [wanted]})
        return str(made["registered_limits"][0]["id"])

    async def set(self, project: str, resource: str, limit: int) -> str:
        """Set a limit of one project; return its id."""
        wanted = {**self._of, "project_id": project, "resource_name": resource, "resource_limit": limit}
        return str((await self.ask("POST", "/limits", {"limits": [wanted]}))["limits"][0]["id"])


@pytest.fixture
async def neighbours(tmp_path: Path) -> AsyncIterator[RealNeighbours]:
    """Both services, with the port of the cloud that follows in the catalogue."""
    async with real_neighbours(tmp_path / "neighbours", f"http://127.0.0.1:{free_port()}/v2.1") as services:
        yield services


@pytest.fixture
async def keystone(neighbours: RealNeighbours) -> AsyncIterator[LimitsOfKeystone]:
    async with plain_client(neighbours.auth_url) as client:
        client.headers["X-Auth-Token"] = await sign_in(client, "admin", "admin")
        [service] = (await client.get("/services?type=compute")).json()["services"]
        found = await client.get(f"/endpoints?service_id={service['id']}&interface=public")
        [endpoint] = found.json()["endpoints"]
        yield LimitsOfKeystone(client, endpoint)


def _configured(root: Path, neighbours: RealNeighbours, endpoint_id: str, user: str = "skep") -> Path:
    root.mkdir()
    file = root / "skep.toml"
    file.write_text(f"""
[state]
directory = "{root / "state"}"
[api]
port = 0
[identity]
kind = "keystone"
auth_url = "{neighbours.auth_url}"
username = "{user}"
password = "{PASSWORD}"
[images]
kind = "glance"
[quota]
driver = "unified"
endpoint_id = "{endpoint_id}"
unified_limits_cache_seconds = {CACHE_SECONDS}
[compute.fake]
spawn_delay = 0.0
[conductor]
lease_seconds = 2.0
resend_seconds = 0.3
""")
    return file


class Users:
    """Those who ask the cloud: `demo`, `other` in a project without limits of its own, and an administrator."""

    def __init__(self, neighbours: RealNeighbours, keystone: LimitsOfKeystone, compute: httpx.AsyncClient) -> None:
        self._neighbours = neighbours
        self._keystone = keystone
        self._compute = compute
        self._sessions: dict[str, ComputeSession] = {}

    async def sign_in(self, user: str, project: str) -> None:
        token = await sign_in(self._keystone.client, user, project)
        self._sessions[user] = ComputeSession(self._compute, token)

    async def read(self, user: str, path: str) -> Any:
        """Return the one value of an answer."""
        answer = await self._sessions[user].ask("GET", path)
        assert answer.status_code == 200, answer.text
        [value] = answer.json().values()
        return value

    async def may_have(self, user: str) -> tuple[int, int, int]:
        """Return how many servers, cores and MiB a user's project may have, as the user sees it."""
        absolute = (await self.read(user, "/limits"))["absolute"]
        return (absolute["maxTotalInstances"], absolute["maxTotalCores"], absolute["maxTotalRAMSize"])

    async def create(self, user: str) -> httpx.Response:
        """Ask for a server of the smallest flavor."""
        body = {"name": "one", "imageRef": self._neighbours.image_id, "flavorRef": "1", "networks": "none"}
        return await self._sessions[user].ask("POST", "/servers", {"server": body}, version="2.37")

    async def creates(self, user: str) -> None:
        """Create a server, which must be within the limits."""
        made = await self.create(user)
        assert made.status_code == 202, made.text

    async def refused(self, user: str) -> str:
        """Return why a server is too much."""
        refused = await self.create(user)
        assert refused.status_code == 403, refused.text
        return str(refused.json()["forbidden"]["message"])

    async def see(self, user: str, limits: tuple[int, int, int]) -> None:
        """Wait until a user sees these limits: those seen before count for the time of the cache."""

        async def is_so() -> bool:
            return await self.may_have(user) == limits

        await eventually(is_so, f"{user} sees {limits}")


async def _other_project(neighbours: RealNeighbours, keystone: LimitsOfKeystone) -> str:
    """Make a project `others` with the member `other`, and a user `weak` with no more than the role `service`."""
    roles = {role["name"]: role["id"] for role in (await keystone.ask("GET", "/roles"))["roles"]}
    project = {"project": {"name": "others", "domain_id": "default"}}
    others = str((await keystone.ask("POST", "/projects", project))["project"]["id"])
    for name, of, role in (("other", others, "member"), ("weak", neighbours.project_ids["service"], "service")):
        user = {"user": {"name": name, "domain_id": "default", "password": PASSWORD}}
        made = (await keystone.ask("POST", "/users", user))["user"]["id"]
        await keystone.ask("PUT", f"/projects/{of}/users/{made}/roles/{roles[role]}")
    return others


async def test_limits_of_keystone_are_the_quotas(
    neighbours: RealNeighbours, keystone: LimitsOfKeystone, tmp_path: Path
) -> None:
    demo = neighbours.project_ids["demo"]
    others = await _other_project(neighbours, keystone)
    registered = {resource: await keystone.register(resource, limit) for resource, limit in REGISTERED.items()}
    own = await keystone.set(demo, "servers", 2)
    # Limits of another region, and of another service, are nothing to this cloud.
    await keystone.ask("POST", "/regions", {"region": {"id": "Elsewhere"}})
    await keystone.register("servers", 77, region_id="Elsewhere")
    [image] = (await keystone.ask("GET", "/services?type=image"))["services"]
    await keystone.register("servers", 88, service_id=image["id"])

    file = _configured(tmp_path / "cloud", neighbours, keystone.endpoint_id)
    async with (
        serving_cloud(load(file, {}).config, cells=1, hosts=1) as cloud,
        plain_client(cloud.api_url) as client,
    ):
        users = Users(neighbours, keystone, client)
        for user, project in (("demo", "demo"), ("other", "others"), ("admin", "admin")):
            await users.sign_in(user, project)

        # What is set for a project counts there; elsewhere what is registered does.
        assert await users.may_have("demo") == (2, 20, 2 * TINY_MIB)
        assert await users.may_have("other") == (1, 20, 2 * TINY_MIB)
        for path, servers in ((demo, 2), (others, 1), (f"{demo}/defaults", 1)):
            shown = await users.read("admin", f"/os-quota-sets/{path}")
            assert (shown["instances"], shown["cores"], shown["ram"]) == (servers, 20, 2 * TINY_MIB)
            assert shown["server_groups"] == 3
            assert shown["metadata_items"] == -1, "it is not registered"

        # The servers of a project are counted against its own limit.
        await users.creates("demo")
        await users.creates("demo")
        assert await users.refused("demo") == TOO_MANY.format("instances, ram", "1, 512", "2, 1024", "2, 1024")
        await users.creates("other")
        assert await users.refused("other") == TOO_MANY.format("instances", 1, 1, 1)
        detail = await users.read("admin", f"/os-quota-sets/{demo}/detail")
        assert detail["instances"] == {"limit": 2, "in_use": 2, "reserved": 0}

        # A change in Keystone counts once the answer before it is too old: of a project, and of all.
        await keystone.ask("PATCH", f"/limits/{own}", {"limit": {"resource_limit": 3}})
        await users.see("demo", (3, 20, 2 * TINY_MIB))
        assert await users.refused("demo") == TOO_MANY.format("ram", TINY_MIB, 2 * TINY_MIB, 2 * TINY_MIB)
        more = {"registered_limit": {"default_limit": 3 * TINY_MIB}}
        await keystone.ask("PATCH", f"/registered_limits/{registered['class:MEMORY_MB']}", more)
        await users.see("demo", (3, 20, 3 * TINY_MIB))
        await users.creates("demo")

        # A limit of a project may be none at all; without one the project has what is registered.
        await keystone.ask("PATCH", f"/limits/{own}", {"limit": {"resource_limit": -1}})
        await users.see("demo", (-1, 20, 3 * TINY_MIB))
        await keystone.ask("DELETE", f"/limits/{own}")
        await users.see("demo", (1, 20, 3 * TINY_MIB))
        assert "instances, ram" in await users.refused("demo")

    await _is_said_at_the_start(neighbours, keystone.endpoint_id, tmp_path)


async def _is_said_at_the_start(neighbours: RealNeighbours, endpoint_id: str, root: Path) -> None:
    # Limits that cannot be found are no reason to serve without them, or to refuse each request.
    starts = (
        ("unknown", "0" * 32, "skep", "does not know the compute service's endpoint; it is '0{32}'"),
        ("hidden", endpoint_id, "weak", "does not show .* user 'weak' needs the role `admin` in project 'service'"),
    )
    for name, named, user, why in starts:
        file = _configured(root / name, neighbours, named, user)
        with pytest.raises(Misconfigured, match=rf"quota\.endpoint_id: .*{why}"):
            async with serving_cloud(load(file, {}).config, cells=1, hosts=1):
                pass
