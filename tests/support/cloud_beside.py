"""A whole cloud whose neighbours are Skep's own services and a twin of Cinder, behind ports that can fail."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import msgspec

from skep.config.compute import FakeFailure, HostImagesSettings
from skep.config.networks import NetworksSettings
from skep.config.sections import Config, IdentitySettings, ImagesSettings, QuotaSettings
from skep.config.volumes import VolumesSettings
from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import ComputeSession, http_config, serving_cloud
from skep.contracts.loopback import plain_client
from skep.contracts.neighbours.served import PASSWORDS, ServedNeighbours, neighbours, token
from skep.database.api import awaited_images
from skep.database.api.image_tables import images
from skep.database.api.images import Viewer
from skep.domain.clock import Clock
from skep.domain.errors import NotFound
from skep.processes.all_in_one import AllInOneCloud
from skep.processes.seeds import clouds_yaml
from skep.standalone.identity.settings import ServiceEntry, standard_catalogue
from skep.standalone.images.service import EVERYBODY
from skep_lab.cinder_twin.served import served_twin
from skep_lab.cinder_twin.store import VolumeStore
from skep_lab.faulty_service import FaultyService, faulty_service

SECONDS = 2.0
"""After which the cloud gives a try up; there is one."""

DATA = b"what a disk begins with" * 5000

LIMITS: dict[str, Any] = {
    "/v3/endpoints/compute": {"endpoint": {"service_id": "s"}},
    "/v3/registered_limits": {"registered_limits": [{"resource_name": "servers", "default_limit": 10}]},
    "/v3/limits": {"limits": []},
}
"""What the embedded identity does not know: unified limits."""


def canned_limits(path: str) -> Any:
    """Return what Keystone says of unified limits."""
    return LIMITS.get(path.partition("?")[0])


@dataclass
class CloudBeside:
    """The cloud, the services behind the ports, and what a user does."""

    cloud: AllInOneCloud
    behind: ServedNeighbours
    keystone: FaultyService
    glance: FaultyService
    neutron: FaultyService
    cinder: FaultyService
    volumes: VolumeStore
    """What Cinder knows."""
    client: httpx.AsyncClient
    config: Config
    running: AsyncExitStack
    cells: int
    hosts: int
    """Of each cell."""

    async def restart(self) -> None:
        """End the cloud, and begin it anew with what it has written."""
        await self.running.aclose()
        self.cloud, self.client = await _begun(self.config, self.running, self.cells, self.hosts)

    def for_clients(self, folder: Path) -> Path:
        """Have the catalogue name this cloud and its neighbours; return a file by which clients sign in to it.

        What it names is behind the ports that can fail, but for the identity service.
        """
        identity = self.behind.identity
        url = identity.settings.public_url
        catalogue = standard_catalogue(self.cloud.api_url, url, self.glance.url, self.neutron.url)
        cinder = ServiceEntry(type="volumev3", name="cinder", public=f"{self.cinder.url}/v3")
        identity.settings = msgspec.structs.replace(identity.settings, catalogue=(*catalogue, cinder))
        file = folder / "clouds.yaml"
        file.write_text(clouds_yaml(url, PASSWORDS))
        return file

    async def token(self, user: str = "demo", project: str = "demo") -> str:
        """Sign in without the port that can fail."""
        async with self.behind.identity_client() as client:
            return await token(client, user, project)

    async def session(self, user: str = "demo", project: str = "demo") -> ComputeSession:
        """Return a session of which Keystone has not been asked yet."""
        return ComputeSession(self.client, await self.token(user, project))

    async def image(self, name: str = "tiny") -> str:
        """Make an image that everybody may use."""
        said = {"name": name, "visibility": "public", "disk_format": "raw", "container_format": "bare"}
        project = self.behind.first.project_ids["demo"]
        made = await self.behind.images.create(said, Viewer(project_id=project, is_admin=True))

        async def pieces() -> AsyncIterator[bytes]:
            yield DATA

        await self.behind.images.upload(made.id, pieces(), Viewer(project_id=project, is_admin=True))
        self.volumes.images[made.id] = {"image_name": name, "min_disk": 1}
        return made.id

    async def images(self) -> list[str]:
        """Return the names of all images, whose ever they are."""
        async with self.behind.images_client() as client:
            headers = {"X-Auth-Token": await self.token("admin", "admin")}
            answer = await client.get("/v2/images", headers=headers)
            assert answer.status_code == 200, answer.text
            return sorted(one["name"] for one in answer.json()["images"])

    async def image_status(self, image_id: str) -> str | None:
        """Return the status of an image; None: there is none."""
        try:
            return (await self.behind.images.get(image_id, EVERYBODY)).status
        except NotFound:
            return None

    async def interrupt_image(self, image_id: str) -> None:
        """Leave an image as Glance does that dies while it takes bytes."""
        mine = images.c.id == image_id
        await self.behind.database.write(
            lambda connection: connection.execute(images.update().where(mine).values(status="saving"))
        )

    async def request(self, session: ComputeSession, image_id: str, name: str = "one") -> str:
        """Ask for a server."""
        body = {"server": {"name": name, "imageRef": image_id, "flavorRef": "1", "networks": "none"}}
        answer = await session.ask("POST", "/servers", body, version="2.37")
        assert answer.status_code == 202, answer.text
        return str(answer.json()["server"]["id"])

    async def server(self, session: ComputeSession, uuid: str) -> dict[str, Any]:
        """Show a server."""
        answer = await session.ask("GET", f"/servers/{uuid}")
        assert answer.status_code == 200, answer.text
        shown: dict[str, Any] = answer.json()["server"]
        return shown

    async def calm(self, session: ComputeSession, uuid: str, status: str) -> None:
        """Wait until nothing is done to a server any more."""

        async def is_so() -> bool:
            server = await self.server(session, uuid)
            return (server["status"], server["OS-EXT-STS:task_state"]) == (status, None)

        await eventually(is_so, f"the server is {status}")

    async def nothing_awaited(self) -> None:
        """Wait until no image is awaited."""

        async def none() -> bool:
            return not await self.cloud.plane.databases.api.read(awaited_images.read_all)

        await eventually(none, "no image is awaited")


@asynccontextmanager
async def cloud_beside(
    root: Path,
    *failures: FakeFailure,
    unified: bool = False,
    networks: bool = False,
    volumes: bool = False,
    hosts: int = 1,
    of_hosts: Mapping[str, Any] | None = None,
    of_conductors: Mapping[str, Any] | None = None,
    cells: int = 1,
    plugs: bool = False,
    interfaces_of_host: bool = False,
    attaches: bool = False,
    attaches_interfaces: bool = False,
    breaker_failures: int = 0,
    breaker_seconds: float = 5.0,
    reimage_seconds: float = 20.0,
    volume_seconds: float = 600.0,
    not_ready_seconds: float = 300.0,
) -> AsyncIterator[CloudBeside]:
    """Run a cloud of one host for the length of a block; with `unified` Keystone's limits are its quotas.

    With `networks` its servers have their ports from the network service behind the third port, with `volumes` their
    volumes from the twin of Cinder behind the fourth. `of_hosts` are settings of `[compute]`, `of_conductors` of
    `[conductor]`; each of `cells` has so many hosts. Hosts that `plug` make interfaces; `interfaces_of_host`: no other
    host has them; those that `attach` connect volumes; `attaches_interfaces`: they give interfaces to guests that are
    there. Without `breaker_failures` no service ever counts as away: it is asked as soon as it is healed.
    `reimage_seconds`: in which a volume is filled anew; `volume_seconds`: in which one is made;
    `not_ready_seconds`: for which conductors wait for what others have to answer.
    """
    async with AsyncExitStack() as stack:
        folder = root / "neighbours"
        folder.mkdir()
        behind = await stack.enter_async_context(neighbours(folder, Clock()))
        await stack.enter_async_context(behind.served())
        keystone = await stack.enter_async_context(faulty_service(behind.identity_url, canned_limits))
        glance = await stack.enter_async_context(faulty_service(behind.images_url))
        neutron = await stack.enter_async_context(faulty_service(behind.networks_url))
        twin = await stack.enter_async_context(served_twin(behind))
        cinder = await stack.enter_async_context(faulty_service(twin.place.url.removesuffix("/v3")))
        own: dict[str, Any] = {"username": "admin", "password": PASSWORDS["admin"], "project_name": "admin"}
        config = http_config(root, failures=failures)
        limits = QuotaSettings(driver="unified", endpoint_id="compute", unified_limits_cache_seconds=0.0)
        host_images = HostImagesSettings(
            auth_url=behind.identity_url, endpoint=glance.url, store=True, timeout=SECONDS, **own
        )
        fake = msgspec.structs.replace(
            config.compute.fake,
            plugs=plugs,
            interfaces_of_host=interfaces_of_host,
            attaches=attaches,
            attaches_interfaces=attaches_interfaces,
        )
        of_volumes = VolumesSettings()
        if volumes:
            of_volumes = VolumesSettings(
                kind="cinder",
                endpoint=f"{cinder.url}/v3",
                reimage_timeout_per_gb=reimage_seconds,
                build_seconds=volume_seconds,
            )
        config = msgspec.structs.replace(
            config,
            quota=limits if unified else config.quota,
            identity=IdentitySettings(
                kind="keystone",
                auth_url=keystone.url,
                timeout=SECONDS,
                retries=0,
                breaker_failures=breaker_failures,
                breaker_seconds=breaker_seconds,
                **own,
            ),
            images=ImagesSettings(kind="glance", endpoint=glance.url),
            networks=NetworksSettings(kind="neutron", endpoint=neutron.url) if networks else NetworksSettings(),
            volumes=of_volumes,
            conductor=msgspec.structs.replace(
                config.conductor, not_ready_deadline=not_ready_seconds, **(of_conductors or {})
            ),
            compute=msgspec.structs.replace(config.compute, images=host_images, fake=fake, **(of_hosts or {})),
        )
        running = await stack.enter_async_context(AsyncExitStack())
        cloud, client = await _begun(config, running, cells, hosts)
        yield CloudBeside(
            cloud, behind, keystone, glance, neutron, cinder, twin.store, client, config, running, cells, hosts
        )


async def _begun(
    config: Config, stack: AsyncExitStack, cells: int, hosts: int
) -> tuple[AllInOneCloud, httpx.AsyncClient]:
    cloud = await stack.enter_async_context(serving_cloud(config, cells=cells, hosts=hosts))
    return cloud, await stack.enter_async_context(plain_client(cloud.api_url))
