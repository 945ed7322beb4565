"""Every key of the configuration: its type, bounds, default and one line that says what it is for.

Options that mean what Nova's or Keystone's mean carry their names and defaults. Sizes say their unit in the
name; times without one are seconds. Adding a key here is all it takes: reading, checking, `skep config show`
and `docs/configuration.md` follow from this file.

A description's `extra` may mark a value as a secret: `{"hide": "value"}` hides all of it, `{"hide": "url"}`
the password inside a database address.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from skep.config.base import Section, port_of_health, tcp_port
from skep.config.compute import ComputeSettings
from skep.config.events import EventsSettings
from skep.config.http import HttpSettings
from skep.config.metadata import MetadataSettings
from skep.config.nats_security import NatsSecurity
from skep.config.neighbours import GlanceSection, KeystoneSection
from skep.config.networks import NetworksSettings
from skep.config.notifications import NotificationsSettings
from skep.config.pci import PciSettings
from skep.config.placement_options import MetricsSettings
from skep.config.scheduler import SchedulerSettings
from skep.config.volumes import VolumesSettings

LOOPBACK = "127.0.0.1"


class ProcessSettings(Section, frozen=True, kw_only=True):
    """What every process of an installation has."""

    host: Annotated[str, Meta(description="Host name in lists of services; empty: the machine's name")] = ""
    drain_seconds: Annotated[
        float, Meta(gt=0, description="Seconds that a stopping process may take to finish work under way")
    ] = 30.0


class ApiSettings(Section, frozen=True, kw_only=True):
    """The compute API and what it accepts."""

    bind_host: Annotated[
        str,
        Meta(
            min_length=1,
            description="Address the HTTP services listen on; beyond loopback needs TLS in front",
        ),
    ] = LOOPBACK
    port: Annotated[int, tcp_port("Port of the compute API; 0 takes a free one")] = 8774
    public_url: Annotated[
        str, Meta(description="URL of the compute API for clients, without its version; empty: its own address")
    ] = ""
    max_body_bytes: Annotated[
        int, Meta(ge=1024, description="Largest request body; more is answered with 413 (Nova's max_request_body_size)")
    ] = 114688
    max_limit: Annotated[int, Meta(ge=1, description="Most items in one page of a list (Nova's max_limit)")] = 1000
    backlog_limit: Annotated[
        int,
        Meta(
            ge=1,
            description="Most servers waiting for a host; beyond it creating answers 503 with Retry-After",
        ),
    ] = 10000
    requests_per_second: Annotated[
        float,
        Meta(
            ge=0, description="Requests a second of one project to one process; beyond it 429 with Retry-After; 0: any"
        ),
    ] = 500.0
    requests_burst: Annotated[
        int, Meta(ge=1, description="Requests that a project may send at once after a pause, beyond that rate")
    ] = 5000
    requests_at_once: Annotated[
        int,
        Meta(
            ge=0, description="Requests of one project under way in one process; beyond it 429 with Retry-After; 0: any"
        ),
    ] = 500
    anonymous_requests_per_second: Annotated[
        float,
        Meta(ge=0, description="Requests a second of one address without a valid token; beyond it 429; 0: any"),
    ] = 100.0
    anonymous_requests_burst: Annotated[
        int, Meta(ge=1, description="Requests that an address may send at once without a valid token, beyond that rate")
    ] = 2000
    policy_file: Annotated[
        str,
        Meta(description="oslo.policy file (YAML) that overrides the default rules; empty: defaults only"),
    ] = ""
    evacuate_needs_fence: Annotated[
        bool, Meta(description="Whether servers are evacuated only from hosts that are fenced (`skep host fence`)")
    ] = False


class IdentitySettings(KeystoneSection, frozen=True, kw_only=True):
    """The identity service that issues tokens: the embedded one, or Keystone."""

    port: Annotated[int, tcp_port("Port of the identity service; 0 takes a free one")] = 5000
    listen: Annotated[bool, Meta(description="Whether API processes serve it; tokens are accepted anyway")] = True
    public_url: Annotated[str, Meta(description="URL for clients, with `/v3`; empty: its own address")] = ""
    token_expiration: Annotated[
        int, Meta(ge=1, description="Seconds a token is valid (Keystone's [token] expiration)")
    ] = 3600
    scrypt_cost: Annotated[
        int,
        Meta(ge=10, le=20, description="Cost of a password hash: scrypt with N = 2 to this power, r = 8, p = 1"),
    ] = 14
    password_threads: Annotated[
        int, Meta(ge=1, le=64, description="Threads that hash passwords, so at most so many at once")
    ] = 2
    sign_in_failures: Annotated[
        int, Meta(ge=1, description="Wrong passwords of a user from one address before 429 with growing delays")
    ] = 5
    sign_in_longest_delay: Annotated[
        int, Meta(ge=1, le=900, description="Seconds of the longest delay after wrong passwords")
    ] = 300

    lockout_failure_attempts: Annotated[
        int, Meta(ge=0, description="Wrong passwords of a user from all addresses that lock the user out; 0: never")
    ] = 0
    lockout_duration: Annotated[int, Meta(ge=1, le=86_400, description="Seconds that a user is locked out")] = 1800
    password_regex: Annotated[
        str, Meta(description="Pattern that new passwords must match from their beginning; empty: any password")
    ] = ""
    password_regex_description: Annotated[
        str, Meta(description="What users are told of the pattern; empty: the pattern")
    ] = ""
    minimum_password_length: Annotated[
        int, Meta(ge=0, le=255, description="Characters that new passwords have at least")
    ] = 0
    unique_last_password_count: Annotated[
        int,
        Meta(
            ge=0, le=10, description="Passwords of a user, with the new one, that are all different; below 2: no rule"
        ),
    ] = 0
    password_expires_days: Annotated[
        int, Meta(ge=0, le=36_500, description="Days after which a password has to be changed; 0: never")
    ] = 0


class ImagesSettings(GlanceSection, frozen=True, kw_only=True):
    """The image service from which servers boot: the embedded one, or Glance."""

    port: Annotated[int, tcp_port("Port of the image service; 0 takes a free one")] = 9292
    listen: Annotated[bool, Meta(description="Whether API processes serve it")] = True
    public_url: Annotated[str, Meta(description="URL for clients; empty: its own address")] = ""
    images_per_project: Annotated[int, Meta(ge=-1, description="Images per project; -1: any number")] = 100
    mib_per_project: Annotated[
        int, Meta(ge=-1, description="MiB that the images of a project have together; -1: any number")
    ] = 102_400
    image_property_quota: Annotated[int, Meta(ge=-1, description="Properties per image; -1: any number")] = 128
    image_tag_quota: Annotated[int, Meta(ge=-1, description="Tags per image; -1: any number")] = 128
    image_member_quota: Annotated[int, Meta(ge=-1, description="Members per image; -1: any number")] = 128
    property_bytes: Annotated[
        int, Meta(ge=-1, description="Bytes of names and values of the properties of one image; -1: any number")
    ] = 65_536
    page_bytes: Annotated[int, Meta(ge=1024, description="Bytes of descriptions after which a page of a list ends")] = (
        4_194_304
    )
    free_mib: Annotated[
        int,
        Meta(ge=0, description="MiB that uploads leave free on the disk; of a small disk a quarter"),
    ] = 1024
    first_image: Annotated[
        str,
        Meta(
            description="qcow2 file that a new cloud with the driver `libvirt` has as its image `tiny`; "
            "empty: one that is made of Debian's packages"
        ),
    ] = ""


class DatabaseSettings(Section, frozen=True, kw_only=True):
    """The databases above the cells."""

    directory: Annotated[str, Meta(description="Directory of the SQLite files; empty: `db` in the state directory")] = (
        ""
    )
    api_url: Annotated[
        str,
        Meta(description="SQLAlchemy URL of the API database; empty: a SQLite file", extra={"hide": "url"}),
    ] = ""
    cell0_url: Annotated[
        str,
        Meta(
            description="SQLAlchemy URL of cell0, which keeps servers that never got a host; empty: SQLite",
            extra={"hide": "url"},
        ),
    ] = ""


class CellSettings(Section, frozen=True, kw_only=True):
    """One cell: its hosts share a database and a messaging."""

    name: Annotated[
        str,
        Meta(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$",
            description="Name of the cell, unique; `cell0` is taken",
        ),
    ]
    database_url: Annotated[
        str,
        Meta(description="SQLAlchemy URL of the cell's database; empty: a SQLite file", extra={"hide": "url"}),
    ] = ""
    transport_url: Annotated[
        str,
        Meta(
            description="Addresses of the cell's own NATS servers; empty: those of `transport`", extra={"hide": "url"}
        ),
    ] = ""

    def __post_init__(self) -> None:
        """Refuses the name of the cell that keeps servers without a host."""
        if self.name == "cell0":
            raise ValueError("`cell0` is made by Skep itself and cannot be configured")


class QuotaSettings(Section, frozen=True, kw_only=True):
    """What a project may use unless its own quota says otherwise; -1 is unlimited."""

    driver: Annotated[
        Literal["database", "unified"],
        Meta(description="Who keeps the limits: Skep's database, or Keystone's unified limits"),
    ] = "database"
    endpoint_id: Annotated[
        str,
        Meta(description="Id of the compute service's endpoint in Keystone (Nova's [oslo_limit] endpoint_id)"),
    ] = ""
    unified_limits_cache_seconds: Annotated[
        float, Meta(ge=0, le=3600, description="Seconds for which an answer of Keystone about limits is good")
    ] = 10.0
    unified_limits_resource_strategy: Annotated[
        Literal["require", "ignore"],
        Meta(description="What listed resources without a registered limit are: `require` 0, `ignore` unlimited"),
    ] = "require"
    unified_limits_resource_list: Annotated[
        tuple[str, ...],
        Meta(description="The resources that this is said of, as Keystone names them"),
    ] = ("servers",)
    instances: Annotated[int, Meta(ge=-1, description="Servers per project")] = 10
    cores: Annotated[int, Meta(ge=-1, description="Virtual CPUs per project")] = 20
    ram: Annotated[int, Meta(ge=-1, description="Memory per project in MiB")] = 51200
    metadata_items: Annotated[int, Meta(ge=-1, description="Metadata items per server")] = 128
    key_pairs: Annotated[int, Meta(ge=-1, description="Key pairs per user")] = 100
    server_groups: Annotated[int, Meta(ge=-1, description="Server groups per project")] = 10
    server_group_members: Annotated[int, Meta(ge=-1, description="Servers in one server group")] = 10
    injected_files: Annotated[int, Meta(ge=-1, description="Injected files per server")] = 5
    injected_file_content_bytes: Annotated[int, Meta(ge=-1, description="Bytes in one injected file")] = 10240
    injected_file_path_length: Annotated[int, Meta(ge=-1, description="Characters in the path of an injected file")] = (
        255
    )


class TransportSettings(NatsSecurity, frozen=True, kw_only=True):
    """What carries messages between processes."""

    kind: Annotated[
        Literal["memory", "nats"],
        Meta(description="`memory`: all in one process; `nats`: NATS core, for several processes"),
    ] = "memory"
    url: Annotated[
        str,
        Meta(description="Addresses of the NATS servers, separated by commas", extra={"hide": "url"}),
    ] = "nats://127.0.0.1:4222"
    accounts: Annotated[
        bool,
        Meta(description="Whether each cell has a NATS account of its own, as `skep nats config` writes them"),
    ] = False
    host_users: Annotated[
        bool,
        Meta(description="Whether each host has a NATS user of its own, as `skep nats config --host-users` has it"),
    ] = False
    inbox: Annotated[
        str,
        Meta(
            pattern=r"^_INBOX(\.[A-Za-z0-9_-]{1,63}){0,2}$",
            description="Below which subject answers arrive; a host's user may listen to its own only",
        ),
    ] = "_INBOX"
    public_url: Annotated[
        str,
        Meta(description="Addresses of the NATS servers in the configuration of new hosts; empty: `url`"),
    ] = ""
    max_pending: Annotated[
        int, Meta(ge=1, description="Messages that may wait to be sent or answered; beyond it 503 with Retry-After")
    ] = 10000
    max_under_way: Annotated[
        int, Meta(ge=1, description="Messages that a served address works on at once; more are refused, casts dropped")
    ] = 10000
    prefix: Annotated[
        str,
        Meta(
            pattern=r"^[A-Za-z0-9_-]{1,63}$",
            description="First word of all subjects; clouds that share a NATS server need different ones",
        ),
    ] = "skep"


class SynchronizerSettings(NatsSecurity, frozen=True, kw_only=True):
    """Where schedulers share the states of hosts.

    The files are for the `nats` backend; where none is named, those of `transport` serve for the same NATS servers.
    """

    backend: Annotated[
        str,
        Meta(min_length=1, description="`memory`, `sql`, `memcached`, `nats`, or the name of another package's"),
    ] = "memory"
    url: Annotated[
        str,
        Meta(
            description="Where the backend's server is: a SQLAlchemy URL, memcached://HOST:PORT or nats://HOST:PORT",
            extra={"hide": "url"},
        ),
    ] = ""
    name: Annotated[
        str,
        Meta(
            pattern=r"^[a-z][a-z0-9_]{0,30}$",
            description="Name of this cloud's records on the server: table, bucket or prefix",
        ),
    ] = "skep"
    expected_hosts: Annotated[
        int, Meta(ge=1, description="Hosts that the cloud may grow to; a server with less room for them is refused")
    ] = 10000


class ConductorSettings(Section, frozen=True, kw_only=True):
    """How long work may take before another process takes it over."""

    super_conductor_health_port: Annotated[int, port_of_health("super-conductor")] = 0
    cell_conductor_health_port: Annotated[int, port_of_health("cell-conductor")] = 0
    lease_seconds: Annotated[float, Meta(gt=0, description="Seconds after which a silent process loses its work")] = 5.0
    resend_seconds: Annotated[
        float, Meta(gt=0, description="Seconds after which an order that no host has in hand is sent again")
    ] = 2.0
    not_ready_deadline: Annotated[
        float, Meta(gt=0, description="Seconds a server waits for a cell that cannot answer for its hosts")
    ] = 300.0
    scheduled_deadline: Annotated[float, Meta(gt=0, description="Seconds a host has to take up a build")] = 60.0
    building_deadline: Annotated[
        float, Meta(gt=0, description="Seconds without progress until a build is given up")
    ] = 300.0
    spawning_deadline: Annotated[
        float,
        Meta(gt=0, description="Seconds without progress until a server in `spawning` is ERROR"),
    ] = 600.0
    task_deadline: Annotated[
        float,
        Meta(gt=0, description="Seconds without progress until an action of a host is given up"),
    ] = 120.0

    move_deadline: Annotated[
        float,
        Meta(gt=0, description="Seconds without progress until a step of a move is given up"),
    ] = 600.0

    max_concurrent_live_migrations: Annotated[
        int, Meta(ge=0, description="Live migrations that leave a host at once, others wait in the queue; 0: any")
    ] = 1

    live_migration_completion_timeout: Annotated[
        float,
        Meta(
            ge=0,
            description="Seconds for each GiB of memory and disk (2 at least) after which a live migration ends; "
            "0: never",
        ),
    ] = 800.0

    live_migration_timeout_action: Annotated[
        Literal["abort", "force_complete"],
        Meta(description="How: the server stays where it was, or it is paused until all is copied"),
    ] = "abort"

    resize_confirm_window: Annotated[
        float,
        Meta(ge=0, description="Seconds after which a moved or resized server is confirmed by itself; 0: never"),
    ] = 0.0

    allow_resize_to_same_host: Annotated[
        bool,
        Meta(description="Whether a resize may stay on the host of the server, where it needs room for both sizes"),
    ] = False

    moves_between_cells: Annotated[
        bool,
        Meta(
            description="Whether a migration or a resize goes to another cell when its own has no room; "
            "the hosts of both have to see one exchange directory"
        ),
    ] = True

    fence_grace_seconds: Annotated[
        float,
        Meta(ge=0, description="Seconds in which a fence can be withdrawn; then the host's servers are given up"),
    ] = 3600.0

    require_enrolment: Annotated[
        bool,
        Meta(description="Whether only hosts that were enrolled with a token may register; else any agent of the cell"),
    ] = False

    @property
    def progress_seconds(self) -> float:
        """How often hosts say what they have in hand: several times within each deadline."""
        shortest = min(self.scheduled_deadline, self.building_deadline, self.spawning_deadline, self.task_deadline)
        return min(5.0, shortest / 4)

    sweep_seconds: Annotated[
        float, Meta(gt=0, description="Seconds between two searches for claims and group slots that no row names")
    ] = 1.0
    audit_seconds: Annotated[
        float, Meta(gt=0, description="Seconds between two audits of databases, placement and agents")
    ] = 600.0


class AgentsSettings(Section, frozen=True, kw_only=True):
    """Requirements of cell conductors on the agents of their hosts."""

    require_signatures: Annotated[
        bool,
        Meta(description="Whether agents of hosts enrolled before 0.6.0 must sign all messages, too; others always do"),
    ] = False


class RetentionSettings(Section, frozen=True, kw_only=True):
    """How long deleted servers, their actions and placement decisions are kept, and shelved servers on their hosts."""

    reclaim_instance_interval: Annotated[
        int,
        Meta(
            ge=0,
            description="Seconds for which a deleted server is kept, stopped, to be restored (Nova's [DEFAULT] "
            "reclaim_instance_interval); 0: deleted at once",
        ),
    ] = 0
    shelved_offload_time: Annotated[
        int,
        Meta(
            ge=-1,
            description="Seconds for which a shelved server stays on its host (Nova's [DEFAULT] shelved_offload_time); "
            "0: it leaves at once, -1: it stays until an administrator offloads it",
        ),
    ] = 0
    days: Annotated[int, Meta(ge=0, description="Days after which they are purged; 0: never")] = 30
    batch_rows: Annotated[int, Meta(ge=1, le=10000, description="Rows purged in one transaction")] = 200


class LogSettings(Section, frozen=True, kw_only=True):
    """What is logged, to standard error."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="Least severity that is written")
    ] = "info"
    format: Annotated[
        Literal["auto", "text", "json"],
        Meta(description="Form of a line; auto: text on a terminal, JSON otherwise"),
    ] = "auto"


class TracingSettings(Section, frozen=True, kw_only=True):
    """Where the spans of requests and builds go; off unless one of the two places is named."""

    endpoint: Annotated[
        str, Meta(description="Collector that takes OTLP over HTTP, `http://HOST:4318/v1/traces`; empty: none")
    ] = ""
    directory: Annotated[
        str, Meta(description="Directory where each process writes its spans, a JSON object a line; empty: none")
    ] = ""
    sample_ratio: Annotated[
        float, Meta(ge=0, le=1, description="Share of requests that are traced, unless the client decides")
    ] = 1.0


class StateSettings(Section, frozen=True, kw_only=True):
    """Where this installation keeps what it must not lose."""

    directory: Annotated[
        str,
        Meta(
            min_length=1,
            description="Databases, images, fake guests and secrets; relative to the working directory",
        ),
    ] = ".skep"


class ImageCacheSettings(Section, frozen=True, kw_only=True):
    """Images that the hosts of an aggregate are to fetch before servers need them (Nova's `[image_cache]`)."""

    precache_concurrency: Annotated[
        int, Meta(ge=1, le=1000, description="Hosts that one such request has fetch images at once")
    ] = 1
    precache_seconds: Annotated[
        float, Meta(gt=0, description="Seconds one host may take for all images of a request (Nova: long_rpc_timeout)")
    ] = 1800.0


class ConsolesSettings(Section, frozen=True, kw_only=True):
    """Consoles of servers, which API processes hand through by websockets."""

    token_ttl: Annotated[
        float, Meta(ge=1, le=3600, description="Seconds in which the address of a console has to be used, once")
    ] = 600.0
    max_connections: Annotated[int, Meta(ge=0, description="Most consoles open at once in one API process")] = 100
    connections_of_project: Annotated[int, Meta(ge=0, description="Those of the servers of one project")] = 20
    idle_timeout: Annotated[
        float, Meta(gt=0, description="Seconds in which nothing is said in either direction, then a console ends")
    ] = 600.0
    max_seconds: Annotated[float, Meta(gt=0, description="Seconds after which a console ends in any case")] = 43200.0
    allowed_origins: Annotated[
        tuple[str, ...],
        Meta(
            description="Hosts of web pages, beside the API's own, whose scripts may open consoles: the names that "
            "their Origin header has, at any port, and which may show consoles in a frame"
        ),
    ] = ()
    novnc_directory: Annotated[
        str,
        Meta(
            min_length=1,
            description="Directory of the files of noVNC, with `core` and `vendor`, which API processes serve to "
            "browsers; without them no screen is shown",
        ),
    ] = "/usr/share/novnc"


class Config(Section, frozen=True, kw_only=True):
    """All sections together. Only `skep.processes` sees this struct; a service gets its section."""

    state: StateSettings = StateSettings()
    process: ProcessSettings = ProcessSettings()
    log: LogSettings = LogSettings()
    http: HttpSettings = HttpSettings()
    api: ApiSettings = ApiSettings()
    identity: IdentitySettings = IdentitySettings()
    images: ImagesSettings = ImagesSettings()
    networks: NetworksSettings = NetworksSettings()
    volumes: VolumesSettings = VolumesSettings()
    metadata: MetadataSettings = MetadataSettings()
    database: DatabaseSettings = DatabaseSettings()
    cells: Annotated[
        tuple[CellSettings, ...],
        Meta(description="The cells, each a table `[[cells]]`; empty: `skep up` makes its own"),
    ] = ()
    quota: QuotaSettings = QuotaSettings()
    scheduler: SchedulerSettings = SchedulerSettings()
    metrics: MetricsSettings = MetricsSettings()
    transport: TransportSettings = TransportSettings()
    synchronizer: SynchronizerSettings = SynchronizerSettings()
    compute: ComputeSettings = ComputeSettings()
    pci: PciSettings = PciSettings()
    conductor: ConductorSettings = ConductorSettings()
    agents: AgentsSettings = AgentsSettings()
    consoles: ConsolesSettings = ConsolesSettings()
    image_cache: ImageCacheSettings = ImageCacheSettings()
    retention: RetentionSettings = RetentionSettings()
    events: EventsSettings = EventsSettings()
    notifications: NotificationsSettings = NotificationsSettings()
    tracing: TracingSettings = TracingSettings()

    def __post_init__(self) -> None:
        """Refuses two cells of one name, and Glance, Neutron or Cinder without Keystone."""
        if self.images.kind == "glance" and self.identity.kind != "keystone":
            raise ValueError(
                "images.kind is `glance`, which needs identity.kind = `keystone`: Glance checks its tokens"
            )
        if self.volumes.kind == "cinder" and self.identity.kind != "keystone":
            raise ValueError(
                "volumes.kind is `cinder`, which needs identity.kind = `keystone`: Cinder checks its tokens"
            )
        if self.networks.kind == "neutron" and self.identity.kind != "keystone":
            raise ValueError(
                "networks.kind is `neutron`, which needs identity.kind = `keystone`: Neutron checks its tokens"
            )
        if self.quota.driver == "unified" and (self.identity.kind != "keystone" or not self.quota.endpoint_id):
            raise ValueError(
                "quota.driver is `unified`, which needs identity.kind = `keystone` and quota.endpoint_id, the id of "
                "the compute service's endpoint"
            )
        names = [cell.name for cell in self.cells]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"cells: the name `{name}` occurs twice")
