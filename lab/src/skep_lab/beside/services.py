"""The services beside a cloud that dies: identity, networks and volumes, in a thread of the process that judges it.

Networks and volumes answer behind ports that fail. What users bring to their servers is made behind these ports.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from skep.config.networks import NetworksSettings
from skep.config.sections import Config, IdentitySettings
from skep.config.volumes import VolumesSettings
from skep.contracts.eventually import PATIENCE
from skep.contracts.neighbours.served import PASSWORDS, ServedNeighbours, neighbours, token
from skep.domain.clock import Clock
from skep_lab.cinder_twin.served import SAID_OF_IMAGE, SKEP, served_twin
from skep_lab.cinder_twin.store import SHARED_TYPE, TwinCaller, TwinVolume, VolumeStore
from skep_lab.faulty_service import FaultyService, Mishap, faulty_service

T = TypeVar("T")

Json = dict[str, Any]

SECONDS = 2.0
"""After which the cloud gives a request up."""
RETRIES = 2
"""Of a request that may be repeated: signing in, for one, where little answers in time on a busy machine."""
LOOK_SECONDS = 20.0
"""Between two looks of the cloud at what a server has."""
ADDRESSES = "10.64.0.0/14"
MOVED_TYPE = "faster"
"""The type of volumes that were moved."""


class ThingsOfUsers(msgspec.Struct, kw_only=True):
    """What users brought to their servers."""

    volumes: set[str] = msgspec.field(default_factory=set)
    given: set[str] = msgspec.field(default_factory=set)
    """Volumes that may go with a server."""
    ports: set[str] = msgspec.field(default_factory=set)


PAGE = 500
"""Ports of one list: the service gives no more than 1,000 at once."""


class ServicesBeside:
    """Services that a cloud is configured for by `beside`; they run from `start` to `stop`."""

    def __init__(self, folder: Path) -> None:
        """Take a folder that is there for what they keep."""
        self.neutron: FaultyService
        self.cinder: FaultyService
        self.volumes: VolumeStore
        self.things = ThingsOfUsers()
        self.network = ""
        """The id of the network that servers are on."""
        self._folder = folder
        self._behind: ServedNeighbours
        self._networks: Any
        self._loop: asyncio.AbstractEventLoop
        self._end: asyncio.Event
        self._ready = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="services beside", daemon=True)

    def start(self) -> None:
        """Start them. Raises what hinders them."""
        self._thread.start()
        self._ready.wait(PATIENCE)
        if self._failed is not None:
            raise self._failed

    def stop(self) -> None:
        """Stop them; a repeat does nothing."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join(PATIENCE)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - whoever waits for the start is told
            self._failed = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        async with AsyncExitStack() as stack:
            self._behind = behind = await stack.enter_async_context(neighbours(self._folder, Clock()))
            await stack.enter_async_context(behind.served())
            twin = await stack.enter_async_context(served_twin(behind))
            self.volumes = twin.store
            self.neutron = await stack.enter_async_context(faulty_service(behind.networks_url))
            self.cinder = await stack.enter_async_context(faulty_service(twin.place.url.removesuffix("/v3")))
            self._networks = await stack.enter_async_context(behind.networks_client())
            async with behind.identity_client() as client:
                self._networks.headers["X-Auth-Token"] = await token(client, SKEP, SKEP)
            await self._make_network()
            self._ready.set()
            await self._end.wait()

    def told(self, asked: Coroutine[Any, Any, T]) -> T:
        """Run something in the loop of the services; return what it returns."""
        return asyncio.run_coroutine_threadsafe(asked, self._loop).result(PATIENCE)

    def beside(self, config: Config) -> Config:
        """Return a cloud beside these services: its images are its own."""
        return msgspec.structs.replace(
            config,
            identity=IdentitySettings(
                kind="keystone",
                auth_url=self._behind.identity_url,
                username=SKEP,
                password=PASSWORDS[SKEP],
                project_name=SKEP,
                timeout=SECONDS,
                retries=RETRIES,
                # A story goes on at the moment in which a service answers again.
                breaker_failures=0,
            ),
            networks=NetworksSettings(kind="neutron", endpoint=self.neutron.url, look_seconds=LOOK_SECONDS),
            volumes=VolumesSettings(kind="cinder", endpoint=f"{self.cinder.url}/v3", look_seconds=LOOK_SECONDS),
        )

    def token(self) -> str:
        """Return a token of the admin, who is also the user of all servers."""

        async def signed_in() -> str:
            async with self._behind.identity_client() as client:
                return await token(client, SKEP, SKEP)

        return self.told(signed_in())

    def know_image(self, image_id: str) -> None:
        """Have volumes be made of an image."""
        self.volumes.images[image_id] = SAID_OF_IMAGE

    def new_volume(self, *, given: bool = False, shared: bool = False) -> str:
        """Make a volume of the user's; `given`: it may go with a server."""

        async def made() -> str:
            caller = TwinCaller(project_id=self._behind.first.project_ids[SKEP])
            fields = {"size": 1, **({"volume_type": SHARED_TYPE} if shared else {})}
            volume = self.volumes.create_volume(caller, fields)
            volume.status, volume.becomes = "available", ""
            return volume.id

        volume = self.told(made())
        (self.things.given if given else self.things.volumes).add(volume)
        return volume

    def begin_move(self, volume_id: str) -> str:
        """Begin to move a volume of the user's to another one, as a change of its type does; return the other one."""

        async def begun() -> str:
            store, others = self.volumes, list[str]()
            store.types[MOVED_TYPE] = MOVED_TYPE
            store.on_move = lambda _old, other, _servers: others.append(other.id)
            store.retype(store.volumes[volume_id], MOVED_TYPE, "on-demand")
            return others[0]

        return self.told(begun())

    def moved(self, volume_id: str) -> str | None:
        """Return what came of the move of a volume, as the service knows it."""

        async def shown() -> str | None:
            return self.volumes.volumes[volume_id].migration_status

        return self.told(shown())

    def give_up_move(self, volume_id: str, other_id: str) -> None:
        """Give a move up of which nothing was promised; the other volume is the user's then."""

        async def given_up() -> None:
            self.volumes.give_up_move(self.volumes.volumes[volume_id], other_id)

        self.told(given_up())
        self.things.volumes.add(other_id)

    def begin_snapshot(self, volume_id: str) -> str:
        """Begin a snapshot of a volume that a host is to make; return it."""

        async def begun() -> str:
            return self.volumes.assist(self.volumes.volumes[volume_id]).id

        return self.told(begun())

    def snapshot_status(self, snapshot_id: str) -> str:
        """Return how a snapshot is."""

        async def shown() -> str:
            return self.volumes.snapshots[snapshot_id].status

        return self.told(shown())

    def remove_snapshot(self, snapshot_id: str) -> None:
        """Delete a snapshot, as far as no host is needed."""

        async def removed() -> None:
            del self.volumes.snapshots[snapshot_id]

        self.told(removed())

    def grow(self, volume_id: str) -> None:
        """Make a volume larger."""

        async def grown() -> None:
            self.volumes.volumes[volume_id].size += 1

        self.told(grown())

    def new_port(self) -> str:
        """Make a port of the user's."""
        body = {"port": {"network_id": self.network, "name": "mine"}}
        made: Json = self.told(self._ask("POST", "ports", body))
        self.things.ports.add(made["port"]["id"])
        return str(made["port"]["id"])

    def seen_volumes(self) -> dict[str, TwinVolume]:
        """Return all volumes, each of which goes on with what it does."""

        async def listed() -> dict[str, TwinVolume]:
            admin = TwinCaller(project_id=SKEP, is_admin=True)
            found = self.volumes.listed(admin, of_all=True, metadata={})
            return {one.id: msgspec.structs.replace(one) for one in found}

        return self.told(listed())

    def ports(self) -> list[Json]:
        """Return all ports, as an admin sees them."""
        found: list[Json] = []
        while True:
            marker = f"&marker={found[-1]['id']}" if found else ""
            page: Json = self.told(self._ask("GET", f"ports?limit={PAGE}{marker}"))
            found += page["ports"]
            if len(page["ports"]) < PAGE:
                return found

    async def _make_network(self) -> None:
        quota = {"quota": {"port": -1}}
        await self._ask("PUT", f"quotas/{self._behind.first.project_ids[SKEP]}", quota)
        made = await self._ask("POST", "networks", {"network": {"name": "mine"}})
        self.network = str(made["network"]["id"])
        subnet = {"network_id": self.network, "ip_version": 4, "cidr": ADDRESSES}
        await self._ask("POST", "subnets", {"subnet": subnet})

    async def _ask(self, method: str, path: str, body: Json | None = None) -> Json:
        answer = await self._networks.request(method, f"/v2.0/{path}", json=body)
        answer.raise_for_status()
        return dict(answer.json())

    def fail(self, name: str, fault: Mishap) -> None:
        """Have `neutron` or `cinder` fail from now on."""
        self.told(self._named(name).fail(fault))

    def heal(self, name: str) -> None:
        """Have it answer again."""
        self.told(self._named(name).heal())

    def begin_anew(self) -> None:
        """End what the volume service had under way, as its restart does: what was being made never is."""

        async def ended() -> None:
            self.volumes.begin_anew()

        self.told(ended())

    def _named(self, name: str) -> FaultyService:
        return {"neutron": self.neutron, "cinder": self.cinder}[name]
