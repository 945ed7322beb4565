"""A whole cloud with its HTTP services on free loopback ports, in the loop of a test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from skep.config.compute import ComputeSettings, FakeDriverSettings, FakeFailure
from skep.config.networks import NetworksSettings
from skep.config.sections import (
    ApiSettings,
    ConductorSettings,
    Config,
    IdentitySettings,
    ImagesSettings,
    QuotaSettings,
    StateSettings,
)
from skep.contracts.cloud import hosts_up
from skep.contracts.databases import lay_out, locations_of
from skep.contracts.eventually import eventually
from skep.contracts.loopback import plain_client
from skep.database.api import host_mappings
from skep.processes.all_in_one import AllInOneCloud, make_cloud
from skep.processes.directory import StateDirectory
from skep.processes.seeds import passwords_in
from skep.processes.supervisor.cloud import SupervisedCloud


def http_config(
    root: Path, *, failures: Sequence[FakeFailure] = (), quota: QuotaSettings | None = None, backlog_limit: int = 10_000
) -> Config:
    """Return a configuration with free ports, fake hosts that take no time, cheap password hashes."""
    return Config(
        state=StateSettings(directory=str(root / "state")),
        api=ApiSettings(port=0, backlog_limit=backlog_limit),
        identity=IdentitySettings(port=0, scrypt_cost=10),
        images=ImagesSettings(port=0),
        networks=NetworksSettings(port=0),
        quota=quota or QuotaSettings(),
        compute=ComputeSettings(
            fake=FakeDriverSettings(
                spawn_delay=0, destroy_delay=0, power_delay=0, copy_delay=0, failures=tuple(failures)
            )
        ),
        conductor=ConductorSettings(lease_seconds=2.0, resend_seconds=0.3),
    )


class ComputeSession:
    """One user's view of the compute API."""

    def __init__(self, client: httpx.AsyncClient, token: str) -> None:
        self.client = client
        self.token = token

    async def ask(
        self, method: str, path: str, body: object = None, *, version: str = "2.1", **headers: str
    ) -> httpx.Response:
        """Send one request; `path` is below `/v2.1`."""
        sent = {"X-Auth-Token": self.token, "OpenStack-API-Version": f"compute {version}", **headers}
        return await self.client.request(method, path, json=body, headers=sent)


@asynccontextmanager
async def signed_in(
    cloud: AllInOneCloud | SupervisedCloud, user: str = "admin", project: str = "admin", *, at: str | None = None
) -> AsyncIterator[ComputeSession]:
    """Get a token for one of the first users; its session, with the API `at` a URL, lasts as long as the block."""
    password = passwords_in(cloud.clouds_yaml)[user]
    proof = {"user": {"name": user, "password": password, "domain": {"id": "default"}}}
    body = {
        "auth": {
            "identity": {"methods": ["password"], "password": proof},
            "scope": {"project": {"name": project, "domain": {"id": "default"}}},
        }
    }
    async with plain_client(at or cloud.api_url) as client:
        answer = await client.post(f"{cloud.identity_url}/auth/tokens", json=body)
        answer.raise_for_status()
        yield ComputeSession(client, answer.headers["X-Subject-Token"])


@asynccontextmanager
async def serving_cloud(config: Config, *, cells: int = 2, hosts: int = 3) -> AsyncIterator[AllInOneCloud]:
    """Run a cloud for the length of a block, once all its hosts may get servers."""
    _make_databases(config, cells)
    cloud = make_cloud(config, cells=cells, hosts=hosts)
    await cloud.start()
    try:
        async with plain_client(cloud.api_url.removesuffix("/v2.1")) as client:

            async def ready() -> bool:
                answer = await client.get("/readyz")
                if answer.status_code != 200 or answer.json()["warnings"]:
                    return False
                mapped = {one.host for one in await cloud.plane.databases.api.read(host_mappings.every)}
                return cloud.started_hosts <= mapped and await hosts_up(cloud.plane)

            await eventually(ready, "the cloud is ready")
        yield cloud
    finally:
        await cloud.stop()


def _make_databases(config: Config, cells: int) -> None:
    """Make the databases of a cloud that begins, unless its configuration says which cells it has."""
    directory = StateDirectory(Path(config.state.directory))
    if config.cells or directory.databases.exists():
        return
    directory.open()
    try:
        lay_out(locations_of(config, directory, [f"cell{number}" for number in range(1, cells + 1)]))
    finally:
        directory.close()
