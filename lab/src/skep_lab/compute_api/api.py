"""The compute API over fresh databases, with stand-ins for its neighbours, driven without a socket."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from skep.api.app import ComputeApi
from skep.api.policy import Policy
from skep.api.routes import ROUTES
from skep.api.routing import Route
from skep.api.services import ApiServices, ApiSettings
from skep.api.unified_quotas import UnifiedQuotas
from skep.contracts.databases import new_database
from skep.database.api import host_mappings
from skep.database.engine import Database
from skep.domain.cells import HostMapping
from skep.domain.clock import Clock
from skep.domain.context import RequestContext
from skep.domain.errors import NotFound, SkepError, Unavailable
from skep.domain.hosts import HostState, HostUsage
from skep.domain.ids import CELL0, CellUuid, NodeUuid, ProjectId, UserId, new_uuid
from skep.domain.images import Discarded, Image, NewImage, backup_properties
from skep.domain.resources import DISK_GB, MEMORY_MB, VCPU, Inventory
from skep.http.request_limits import RequestLimits, RequestLimitSettings
from skep.messages.base import Done
from skep.messages.to_scheduler import GetHostStates, GetHostStatesReply, PublishOperatorState
from skep.messages.to_super_conductor import OperatorStateChanged
from skep.neighbours.identity.access_rules import Use
from skep.neighbours.identity.base import Identity
from skep.neighbours.networks.absent import NoNetworks
from skep.standalone.images.of_users import EmbeddedOfUsers
from skep.standalone.images.service import StandaloneImages
from skep.standalone.images.settings import ImagesSettings
from skep.transport.base import SCHEDULER, SUPER_CONDUCTOR
from skep.transport.memory import MemoryTransport

CELL1 = CellUuid("11111111-1111-4111-8111-111111111111")
NAMES = {CELL0: "cell0", CELL1: "cell1"}
PROJECT = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
OTHER_PROJECT = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
_READER = ("reader",)
_MEMBER = ("member", "reader")
_ADMIN = ("admin", "manager", "member", "reader")


def _identity(
    user: str, project: str | None, roles: tuple[str, ...], *, system: bool = False, domain: str | None = None
) -> Identity:
    return Identity(
        user_id=UserId(user),
        user_name=user,
        project_id=ProjectId(project) if project else None,
        roles=roles,
        system_scope=system,
        domain_id=domain,
        expires_at=2**60,
    )


TOKENS = {
    "admin": _identity("admin", OTHER_PROJECT, _ADMIN),
    "member": _identity("member", PROJECT, _MEMBER),
    "reader": _identity("reader", PROJECT, _READER),
    "manager": _identity("manager", PROJECT, ("manager", *_MEMBER)),
    "service": _identity("service", PROJECT, ("service",)),
    "guest": _identity("guest", PROJECT, ("auditor",)),
    "other": _identity("other", OTHER_PROJECT, _MEMBER),
    "nobody": _identity("nobody", None, ()),
    "system": _identity("admin", None, _ADMIN, system=True),
    "domain": _identity("admin", None, _ADMIN, domain="default"),
}


class KnownTokens:
    """An identity service for which the token is the user's name."""

    def remembers(self, _token: str) -> bool:
        return True

    async def validate(self, token: str, use: Use | None = None, *, chained: bool = False) -> Identity | None:  # noqa: ARG002
        return TOKENS.get(token)

    async def project_exists(self, project_id: str) -> bool | None:
        return project_id in (PROJECT, OTHER_PROJECT)


class NoImages:
    """An image service without images."""

    async def get(self, image_id: str, context: RequestContext) -> Image:  # noqa: ARG002 - the port says so
        raise NotFound(f"Image {image_id} could not be found.")


class MadeImages:
    """Notes the images that are made of servers."""

    def __init__(self) -> None:
        self.made: dict[str, NewImage] = {}
        self.stored: set[str] = set()
        """The ids of those that have got their bytes."""
        self.protected: set[str] = set()
        """The ids of those that their users keep."""
        self.held: set[str] = set()
        """The ids of those that the service does not let go now."""
        self.asked: list[str] = []
        """The ids of those that were to be deleted, one for each time."""
        self.refuses: SkepError | None = None
        """What the next image is refused by."""

    async def create(self, new: NewImage) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.made[new.id] = new

    async def activate(self, image_id: str, context: RequestContext) -> None:
        assert self.made[image_id].owner == context.project_id
        self.stored.add(image_id)

    async def delete(self, image_id: str) -> None:
        self.asked.append(image_id)
        if image_id in self.held:
            raise Unavailable("the image service answered 409")
        self.made.pop(image_id, None)

    async def backups(self, owner: str, instance: str, backup_type: str) -> list[str]:
        wanted = backup_properties(instance, backup_type).items()
        found = [one.id for one in self.made.values() if one.owner == owner and wanted <= one.properties.items()]
        return [image_id for image_id in reversed(found) if image_id in self.stored]

    async def discard(self, image_id: str) -> Discarded:
        if image_id in self.held:
            raise Unavailable("the image service answered 409")
        if image_id in self.stored:
            return Discarded.STORED
        if image_id in self.protected:
            return Discarded.PROTECTED
        self.made.pop(image_id, None)
        return Discarded.GONE


def images_over(database: Database, directory: Path) -> StandaloneImages:
    """Return an image store whose rows are in the API database."""
    settings = ImagesSettings(directory=directory / "images", identity_url="")
    return StandaloneImages(settings, database, Clock())


class HeldStates:
    """A scheduler that answers with the host states it was given, under the wishes it was told."""

    def __init__(self) -> None:
        self.states: dict[str, HostState] = {}
        self.published: list[PublishOperatorState] = []
        self.nudged = asyncio.Event()
        """Set when somebody told the super conductor that the operator's wishes changed."""

    async def serve(self, transport: MemoryTransport) -> None:
        await transport.serve(SCHEDULER, {GetHostStates: self._get, PublishOperatorState: self._publish})
        await transport.serve(SUPER_CONDUCTOR, {OperatorStateChanged: self._nudge})

    def hold(self, host: str, *, node: str, cell: str = CELL1, up: bool = True, **usage: Any) -> None:
        """Hold the state of a host with 8 cores, 16 GiB and 100 GiB, of which `used` (by class) is taken."""
        self.states[node] = HostState(
            node=NodeUuid(node),
            cell=CellUuid(cell),
            usage=HostUsage(
                host=host,
                inventory={
                    VCPU: Inventory(total=8, allocation_ratio=4.0),
                    MEMORY_MB: Inventory(total=16384, reserved=512),
                    DISK_GB: Inventory(total=100),
                },
                used=usage.pop("used", {}),
                hypervisor_hostname=host,
                hypervisor_type="fake",
                hypervisor_version=1000,
                host_ip="127.0.0.1",
                cpu_info={"arch": "x86_64"},
                uptime="up 1 day",
                **usage,
            ),
            incarnation=1,
            seq=1,
            up=up,
            last_heard=1_700_000_000_000_000,
        )

    async def _get(self, _message: GetHostStates, _context: RequestContext | None) -> GetHostStatesReply:
        return GetHostStatesReply(hosts=tuple(self.states[node] for node in sorted(self.states)), epoch="one")

    async def _publish(self, message: PublishOperatorState, _context: RequestContext | None) -> Done:
        self.published.append(message)
        return Done()

    async def _nudge(self, _message: OperatorStateChanged, _context: RequestContext | None) -> None:
        self.nudged.set()


@dataclass
class ApiUnderTest:
    """The application and a way to ask it."""

    services: ApiServices
    app: ComputeApi
    client: httpx.AsyncClient
    scheduler: HeldStates
    observed: list[tuple[str, str, int]] = field(default_factory=list)
    _mapped: int = 1

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str | None = "admin",
        version: str | None = None,
        prefix: str = "/v2.1",
        **more: Any,
    ) -> httpx.Response:
        headers = dict(more.pop("headers", {}))
        if token is not None:
            headers["X-Auth-Token"] = token
        if version is not None:
            headers["OpenStack-API-Version"] = f"compute {version}"
        if body is not None:
            more["json"] = body
        return await self.client.request(method, prefix + path, headers=headers, **more)

    async def map_host(self, host: str, *, node: str | None = None, held: bool = True, **usage: Any) -> str:
        """Map a host to the cell; a scheduler holds its state unless told otherwise. Return its node."""
        node = node or new_uuid()
        mapping = HostMapping(node=NodeUuid(node), host=host, cell=CELL1, created_at=self._mapped)
        self._mapped += 1
        await self.services.database.write(lambda c: host_mappings.add(c, mapping))
        if held:
            self.scheduler.hold(host, node=node, **usage)
        return node

    async def good(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """Ask, expect success, return the JSON (None for an empty body)."""
        response = await self.ask(method, path, body, **more)
        assert response.is_success, (response.status_code, response.text)
        return response.json() if response.content else None


@contextlib.asynccontextmanager
async def api_under_test(
    directory: Path,
    *,
    settings: ApiSettings | None = None,
    routes: Iterable[Route] = ROUTES,
    transport: MemoryTransport | None = None,
    backlog: int = 0,
    limits: RequestLimits | None = None,
    unified_quotas: UnifiedQuotas | None = None,
) -> AsyncIterator[ApiUnderTest]:
    """Open an API over fresh databases in `directory`."""
    database = new_database(directory / "api.db", "api")
    cells = {uuid: new_database(directory / f"{name}.db", "cell") for uuid, name in NAMES.items()}
    observed: list[tuple[str, str, int]] = []
    transport = transport or MemoryTransport()
    scheduler = HeldStates()
    await scheduler.serve(transport)
    settings = settings or ApiSettings()
    services = ApiServices(
        database=database,
        cells=cells,
        transport=transport,
        clock=Clock(),
        identity=KnownTokens(),
        images=NoImages(),
        image_records=MadeImages(),
        images_of_users=EmbeddedOfUsers(images_over(database, directory)),
        networks=NoNetworks(),
        policy=Policy(settings.policy_file),
        seal=lambda secret: secret[::-1],
        unseal=lambda sealed: sealed[::-1],
        ended=lambda _over: None,
        settings=settings,
        backlog=lambda: backlog,
        limits=limits or RequestLimits(RequestLimitSettings()),
        unified_quotas=unified_quotas,
        observe=lambda method, template, status, _seconds: observed.append((method, template, status)),
    )
    app = ComputeApi(services, routes)
    try:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app, raise_app_exceptions=True), base_url="http://cloud"
        ) as client:
            yield ApiUnderTest(services, app, client, scheduler, observed)
    finally:
        for one in (database, *cells.values()):
            await one.close()
