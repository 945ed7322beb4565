"""What the handlers work with. Wiring builds one `ApiServices` per process; nothing is looked up anywhere else."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import msgspec

from skep.api.background import Background
from skep.api.key_generation import KeyGenerator
from skep.api.lookups import Lookups
from skep.api.policy import Policy
from skep.api.unified_quotas import UnifiedQuotas
from skep.domain.actions import Over
from skep.domain.clock import Clock
from skep.domain.context import RequestContext
from skep.domain.ids import CellUuid, ProjectId
from skep.domain.instances import Instance
from skep.domain.nested.aliases import DeviceAlias
from skep.http.limits import MAX_JSON_BODY
from skep.http.request_limits import RequestLimits, RequestLimitSettings
from skep.transport.base import Transport

if TYPE_CHECKING:
    from skep.database.engine import Database
    from skep.neighbours.identity.base import IdentityService
    from skep.neighbours.images.base import ImageRecords, ImageService, ImagesOfUsers
    from skep.neighbours.networks.base import NetworksOfUsers
from skep.neighbours.volumes.absent import NoVolumes
from skep.neighbours.volumes.base import ServerVolumes, VolumesOfUsers


class QuotaDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of projects for which nobody set others; -1 is no limit. Names and values are Nova's `[quota]`."""

    instances: int = 10
    cores: int = 20
    ram: int = 51200
    """MiB"""
    metadata_items: int = 128
    injected_files: int = 5
    injected_file_content_bytes: int = 10240
    injected_file_path_bytes: int = 255
    key_pairs: int = 100
    server_groups: int = 10
    server_group_members: int = 10
    fixed_ips: int = -1
    floating_ips: int = 10
    security_groups: int = 10
    security_group_rules: int = 20
    networks: int = 3

    def limits(self) -> dict[str, int]:
        """Return the limits by resource name."""
        return {name: getattr(self, name) for name in self.__struct_fields__}


class ApiSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the API behaves; wiring maps configuration onto it. Defaults are Nova's where Nova has the option."""

    max_limit: int = 1000
    """Most items in one page."""
    max_body_bytes: int = MAX_JSON_BODY
    max_backlog: int = 10_000
    """Builds that may wait; beyond it new servers are answered 503."""
    max_servers_per_request: int = 1000
    public_url: str | None = None
    """`https://compute.example.org`: what links begin with. None: what the request says."""
    identity_url: str = "http://127.0.0.1:5000/v3"
    """Where to get a token; named in 401 answers."""
    images_url: str = ""
    """Where images are; empty: only the catalogue says."""
    default_availability_zone: str = "nova"
    default_schedule_zone: str | None = None
    internal_service_availability_zone: str = "internal"
    policy_file: str | None = None
    filters: tuple[str, ...] = ()
    """Filters that the operator has chosen: some hints and extra specs are taken only where a filter reads them."""
    aliases: dict[str, DeviceAlias] = {}
    """What `pci_passthrough:alias` of flavors may name."""
    quotas: QuotaDefaults = QuotaDefaults()
    answer_seconds: float = 10.0
    """How long the answer of a host to a user's question is waited for."""
    console_token_seconds: float = 600.0
    """In which the address of a console has to be used."""
    novnc_directory: Path = Path("/usr/share/novnc")
    """Has the files of noVNC, which shows screens of guests; it may be missing."""
    reclaim_instance_interval: int = 0
    """Seconds for which deleted servers are kept; 0: they are deleted at once."""
    evacuate_needs_fence: bool = False
    """Whether only servers of fenced hosts are evacuated."""
    force_config_drive: bool = False
    """Whether each new server gets a config drive."""
    precache_concurrency: int = 1
    """Hosts of an aggregate that fetch images for their caches at once."""
    precache_seconds: float = 1800.0
    """How long one host may take for that."""


class RunningService(msgspec.Struct, frozen=True, kw_only=True):
    """A process of this deployment beside the agents, for the list of services."""

    uuid: str
    binary: str
    """`nova-scheduler`, `nova-conductor`: the names that operators' tools look for."""
    host: str
    alive: bool = True
    seen_at: int
    """When it was known to live last, microseconds since the epoch."""


def _no_backlog() -> int:
    return 0


async def _nothing_running() -> tuple[RunningService, ...]:
    return ()


def _untold(_notification: str, _server: Instance, _context: RequestContext) -> None:
    return None


def _unheard(_event_type: str, _payload: Mapping[str, Any], _context: RequestContext) -> None:
    return None


def _uncounted(_outcome: str) -> None:
    return None


def _unobserved(_method: str, _template: str, _status: int, _seconds: float) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiServices:
    """Everything that a handler may need, handed to it as `request.services`."""

    database: Database
    """The API database."""
    cells: Mapping[CellUuid, Database]
    """The database of each cell, cell0 among them."""
    transport: Transport
    clock: Clock
    identity: IdentityService
    images: ImageService
    image_records: ImageRecords
    """Makes images of servers, and removes those that come to nothing."""
    images_of_users: ImagesOfUsers
    """Does with images what their users ask."""
    networks: NetworksOfUsers
    """Looks up what users name of networks."""
    volumes: VolumesOfUsers = field(default_factory=NoVolumes)
    """Looks up what users name of volumes."""
    server_volumes: ServerVolumes = field(default_factory=NoVolumes)
    """Keeps volumes for servers and releases them, in Skep's own name."""
    policy: Policy
    seal: Callable[[bytes], bytes]
    """Encrypts adminPass and injected files for storage."""
    unseal: Callable[[bytes], bytes | None]
    """Decrypts what `seal` encrypted; None where it cannot."""
    settings: ApiSettings = field(default_factory=ApiSettings)
    ended: Callable[[Iterable[Over]], None]
    """Tells of actions that are over."""
    asked: Callable[[str, Instance, RequestContext], None] = _untold
    """Tells, by the name of its notification, of something that was asked of a server."""
    tell: Callable[[str, Mapping[str, Any], RequestContext], None] = _unheard
    """Emits a notification, by its event type, of what is no server."""
    runs_on: str = ""
    """The machine of this process."""
    backlog: Callable[[], int] = _no_backlog
    """How many builds wait; asked before each create, so it must be cheap."""
    lookups: Lookups = field(default_factory=Lookups)
    """Flavors, images and hosts as read a moment ago. Whoever changes a flavor calls `lookups.flavors.forget`."""
    list_turns: defaultdict[CellUuid, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))
    """Held while a piece of a long list of servers is read, so that others find a reader of its cell."""
    long_lists: WeakValueDictionary[ProjectId, asyncio.Lock] = field(default_factory=WeakValueDictionary)
    """By the project that asks: held while a long list is read, of which each project has one at a time in memory."""
    running: Callable[[], Awaitable[tuple[RunningService, ...]]] = _nothing_running
    key_generator: KeyGenerator = field(default_factory=KeyGenerator)
    limits: RequestLimits = field(default_factory=lambda: RequestLimits(RequestLimitSettings()))
    """What each project, and each address without a token, may ask."""
    observe: Callable[[str, str, int, float], None] = _unobserved
    """Metrics: method, route template, status, seconds."""
    image_cachings: Background = field(default_factory=Background)
    """Requests to cache images that are under way."""
    count_precached: Callable[[str], None] = _uncounted
    """Metrics: what came of an image on a host that was to cache it."""
    unified_quotas: UnifiedQuotas | None = None
    """None: quotas are Skep's own."""

    async def quotas_of(self, project: ProjectId | None) -> dict[str, int]:
        """Return what `database.api.quotas` takes as the defaults of a project; None: of any.

        Raises Unavailable where Keystone decides the limits and does not say them.
        """
        configured = self.settings.quotas.limits()
        if self.unified_quotas is None:
            return configured
        return await self.unified_quotas.of(project, configured)
