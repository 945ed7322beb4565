"""A whole cloud beside a real Keystone and a real Glance, as a configuration file names them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec

from skep.config import load
from skep.contracts.eventually import PATIENCE, eventually
from skep.contracts.http_cloud import serving_cloud
from skep.processes.all_in_one import AllInOneCloud
from skep.processes.ports import free_port
from skep_lab.neighbours.identity_and_images import IMAGE_BYTES, RealNeighbours, real_neighbours, sign_in
from skep_lab.neighbours.programs import PASSWORD
from tests.support.openstack import client_program


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

    async def image(self, token: str, **said: str) -> str:
        """Make an image with bytes."""
        new = {"disk_format": "raw", "container_format": "bare", **said}
        made = await self.glance("POST", "", token=token, json=new)
        assert made.status_code == 201, made.text
        image_id = str(made.json()["id"])
        kind = {"Content-Type": "application/octet-stream"}
        stored = await self.glance("PUT", f"/{image_id}/file", token=token, content=IMAGE_BYTES, headers=kind)
        assert stored.status_code == 204, stored.text
        return image_id

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
        """Sign in."""
        async with httpx.AsyncClient(base_url=self.neighbours.auth_url, timeout=PATIENCE) as keystone:
            return await sign_in(keystone, user, project)

    async def status(
        self, token: str, path: str = "/servers", method: str = "GET", body: Any = None, service: str | None = None
    ) -> int:
        """Ask the compute API, with the token of a service beside that of the user; return the status."""
        headers = {"X-Auth-Token": token} | ({} if service is None else {"X-Service-Token": service})
        async with httpx.AsyncClient(timeout=PATIENCE) as client:
            url = f"{self.cloud.api_url}{path}"
            return (await client.request(method, url, headers=headers, json=body)).status_code


def configured(file: Path, root: Path, neighbours: RealNeighbours, port: int, password: str = PASSWORD) -> None:
    """Write the configuration file of a cloud beside them."""
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
timeout = 2.0
[compute.fake]
spawn_delay = 0.0
[conductor]
lease_seconds = 2.0
resend_seconds = 0.3
""")


@asynccontextmanager
async def cloud_beside_both(root: Path) -> AsyncIterator[Both]:
    """Run both services, and a cloud of one host beside them, for the length of a block."""
    port = free_port()
    async with real_neighbours(root / "neighbours", f"http://127.0.0.1:{port}/v2.1") as neighbours:
        file = root / "skep.toml"
        configured(file, root, neighbours, port)
        async with serving_cloud(load(file, {}).config, cells=1, hosts=1) as cloud:
            yield Both(neighbours, cloud, file)
