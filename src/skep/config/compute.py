"""Settings of the agent on a host, and of hosts that run no hypervisor."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from skep.config.base import Section, port_of_health
from skep.config.providers import HostProvider, check_providers
from skep.domain.builds import ABORTING, BY_POLICY, ELSEWHERE

DriverOperation = Literal[
    "facts",
    "guests",
    "prepare",
    "spawn",
    "destroy",
    "power_on",
    "power_off",
    "reboot",
    "pause",
    "unpause",
    "suspend",
    "resume",
    "put_aside",
    "kept",
    "receive",
    "take_up",
    "preserve",
    "rescue",
    "unrescue",
    "console_output",
    "diagnostics",
    "serial_line",
    "vnc_line",
    "set_password",
    "trigger_crash_dump",
    "snapshot",
    "await_guest",
    "copy_guest",
    "converge",
    "hand_over",
    "go_on",
    "take_over",
    "attach_volume",
    "detach_volume",
    "swap_volume",
    "extend_volume",
    "create_volume_snapshot",
    "delete_volume_snapshot",
    "attach_interface",
    "detach_interface",
    "networks",
]
"""What can be made to fail."""

FAILURES = ABORTING | BY_POLICY | ELSEWHERE
"""Errors that can be shown."""


class FakeFailure(Section, frozen=True, kw_only=True):
    """A fault the fake driver shall show: for trying out and for tests."""

    operation: Annotated[DriverOperation, Meta(description="Operation of the driver that fails")]
    host: Annotated[str, Meta(description="Hosts it happens on, a shell pattern")] = "*"
    server: Annotated[str, Meta(description="Names of servers it happens to, a shell pattern")] = "*"
    error: Annotated[
        str, Meta(min_length=1, description="Name of the error, which decides what comes of the build: see hosts.md")
    ] = "InternalError"
    message: Annotated[str, Meta(description="Text of the error")] = "injected failure"
    times: Annotated[int, Meta(ge=-1, description="How often it happens on each host; -1: always")] = -1
    after: Annotated[
        int, Meta(ge=0, description="How many matching operations of a host succeed before the first that fails")
    ] = 0
    hangs: Annotated[
        bool, Meta(description="Instead of failing the operation does not return while the host's agent runs")
    ] = False

    def __post_init__(self) -> None:
        """Refuses an error that no rule knows: a misspelt one would be tried elsewhere instead of ending the build."""
        if self.error not in FAILURES:
            raise ValueError(f"error: there is no `{self.error[:80]}`; known are {', '.join(sorted(FAILURES))}")


class FakeDevicesSettings(Section, frozen=True, kw_only=True):
    """Devices of fake hosts that are alike."""

    count: Annotated[int, Meta(ge=1, le=4096, description="Units of each host, spread over its NUMA cells")]
    resource_class: Annotated[
        str, Meta(pattern="^([A-Z0-9_]+)?$", description="Resource class; empty: named after vendor and product")
    ] = ""
    vendor_id: Annotated[
        str, Meta(pattern="^([0-9a-fA-F]{4})?$", description="PCI vendor; empty: the units are only counted")
    ] = ""
    product_id: Annotated[str, Meta(pattern="^([0-9a-fA-F]{4})?$", description="PCI product")] = ""
    device_type: Annotated[
        Literal["type-PCI", "type-PF", "type-VF"], Meta(description="Kind of PCI device, in Nova's words")
    ] = "type-PCI"
    traits: Annotated[tuple[str, ...], Meta(description="Traits of the devices")] = ()

    def __post_init__(self) -> None:
        """Refuses devices of no resource class."""
        if not self.resource_class and not (self.vendor_id and self.product_id):
            raise ValueError("resource_class: needed where vendor_id and product_id are not both given")


FakeCapability = Literal[
    "power",
    "pause",
    "suspend",
    "rescue",
    "image",
    "password",
    "crash_dump",
    "snapshot",
    "move",
    "rebuild",
    "preserve",
    "live_migrate",
    "console_output",
    "diagnostics",
    "serial_console",
    "vnc_console",
    "config_drive",
    "attach_volume",
    "swap_volume",
    "extend_volume",
    "assisted_snapshot",
    "attach_interface",
    "networks",
]
"""Those of `skep.domain.capabilities` that a fake driver has and can lack."""


class FakeDriverSettings(Section, frozen=True, kw_only=True):
    """Hosts that run no hypervisor: their guests live in a file."""

    hosts: Annotated[
        int,
        Meta(
            ge=1, le=10000, description="Fake hosts of each new cell; where it is set, cells that have fewer get more"
        ),
    ] = 3
    vcpus: Annotated[int, Meta(ge=1, description="CPUs of each host")] = 16
    memory_mb: Annotated[int, Meta(ge=1, description="Memory of each host in MiB")] = 32768
    disk_gb: Annotated[int, Meta(ge=1, description="Disk of each host in GiB")] = 500
    numa_cells: Annotated[int, Meta(ge=0, le=64, description="NUMA cells of each host; 0: it reports no inside")] = 0
    dedicated_cpus: Annotated[int, Meta(ge=0, description="Of the CPUs so many may be pinned (PCPU)")] = 0
    threads_per_core: Annotated[int, Meta(ge=1, le=8, description="Threads of each core")] = 1
    huge_pages_mb: Annotated[int, Meta(ge=0, description="Of the memory so much is in pages of 2 MiB")] = 0
    devices: Annotated[
        tuple[FakeDevicesSettings, ...],
        Meta(description="Devices of each host with NUMA cells, each kind a table `[[compute.fake.devices]]`"),
    ] = ()
    spawn_delay: Annotated[float, Meta(ge=0, description="Seconds it takes to make a guest")] = 0.5
    destroy_delay: Annotated[float, Meta(ge=0, description="Seconds it takes to remove a guest")] = 0.5
    power_delay: Annotated[float, Meta(ge=0, description="Seconds an action on a guest takes")] = 0.5
    copy_delay: Annotated[
        float, Meta(ge=0, description="Seconds that each of four slices takes in which a guest that runs is copied")
    ] = 0.5
    plugs: Annotated[
        bool,
        Meta(
            description="Whether each host makes interfaces, on paper: builds wait until Neutron has wired their ports"
        ),
    ] = False
    networks: Annotated[
        bool,
        Meta(
            description="Whether each host brings the networks of its guests, on paper: it keeps what it is told of "
            "them in `networks.json`"
        ),
    ] = False
    interfaces_of_host: Annotated[
        bool,
        Meta(
            description="Whether the interfaces of each host are its own: where a build that failed on one goes to "
            "another host, its ports are made anew"
        ),
    ] = False
    attaches: Annotated[
        bool,
        Meta(
            description="Whether each host connects volumes, on paper: servers that are there get and lose them by it"
        ),
    ] = False
    attaches_interfaces: Annotated[
        bool,
        Meta(
            description="Whether each host gives interfaces to guests that are there, on paper: servers get and lose "
            "them by it"
        ),
    ] = False
    failures: Annotated[
        tuple[FakeFailure, ...], Meta(description="Faults to show, each a table `[[compute.fake.failures]]`")
    ] = ()
    lacks: Annotated[
        tuple[FakeCapability, ...], Meta(description="Capabilities that no host has: what needs them is refused")
    ] = ()


class DriverLimits(Section, frozen=True, kw_only=True):
    """Seconds after which a call of the driver hangs: its outcome is unknown until it returns."""

    facts: Annotated[float, Meta(gt=0, description="Describing the host")] = 30.0
    guests: Annotated[float, Meta(gt=0, description="Listing the guests")] = 60.0
    question: Annotated[float, Meta(gt=0, description="Telling what a user asks about a guest")] = 10.0
    prepare: Annotated[float, Meta(gt=0, description="One resource before the guest, such as a disk from an image")] = (
        1800.0
    )
    spawn: Annotated[float, Meta(gt=0, description="Making a guest")] = 900.0
    destroy: Annotated[float, Meta(gt=0, description="Removing a guest, or one resource that was made for it")] = 600.0
    action: Annotated[
        float, Meta(gt=0, description="Anything else that is done to a guest, such as a start or a reboot")
    ] = 600.0
    snapshot: Annotated[
        float, Meta(gt=0, description="Copying the disk of a guest; after that, sending it to the image service")
    ] = 14400.0
    live_copy: Annotated[
        float,
        Meta(
            gt=0,
            description="Copying a guest that runs, or a volume of one; a cell ends live migrations long before that",
        ),
    ] = 604800.0


class HostImagesSettings(Section, frozen=True, kw_only=True):
    """Where an agent in a process of its own gets the bytes of images and stores some, and how many it keeps.

    In a cloud of one process with embedded images the agents need no credentials: they share its image store. From
    Skep's own image service a host gets images by tickets, otherwise by a user.
    """

    by_ticket: Annotated[
        bool,
        Meta(
            description="Whether the host gets images from Skep's own image service and stores some there, by a ticket "
            "for each transfer that it asks its cell conductor for; needs no user, and conductors of 0.7.0"
        ),
    ] = False

    auth_url: Annotated[
        str,
        Meta(
            description="Address of the Keystone, or of Skep's own identity service, where `username` signs in; empty, "
            "and `by_ticket` false: the host gets no images"
        ),
    ] = ""
    username: Annotated[
        str,
        Meta(
            description="A user for hosts only, that may read images (and store some) and nothing else: see drivers.md"
        ),
    ] = ""
    password: Annotated[str, Meta(description="Password of `username`", extra={"hide": "value"})] = ""
    project_name: Annotated[str, Meta(description="Project of `username`")] = "service"
    user_domain_name: Annotated[str, Meta(description="Domain of `username`")] = "Default"
    project_domain_name: Annotated[str, Meta(description="Domain of `project_name`")] = "Default"
    region_name: Annotated[str, Meta(description="Region whose endpoint of images is used; empty: any")] = ""
    endpoint: Annotated[
        str,
        Meta(description="Address of the image service without `/v2`; empty: what the catalogue or the ticket says"),
    ] = ""
    ca_file: Annotated[
        str, Meta(description="CA that signed the certificates of both services; empty: the system's")
    ] = ""
    store: Annotated[
        bool,
        Meta(description="Whether `username` may store images, too, so that users can make images of their servers"),
    ] = False
    timeout: Annotated[float, Meta(gt=0, description="Seconds for which nothing may arrive")] = 10.0
    largest_mib: Annotated[int, Meta(ge=1, description="Largest image that the host takes, in MiB")] = 102400
    cache_mib: Annotated[
        int, Meta(ge=0, description="MiB of images that the host keeps for later servers though no guest uses them")
    ] = 10240

    def __post_init__(self) -> None:
        """Refuses an address without credentials, two ways at once, and a right of no user."""
        if self.auth_url and self.by_ticket:
            raise ValueError("by_ticket and auth_url are both set: a host gets images in one way")
        if self.store and self.by_ticket:
            raise ValueError("store and by_ticket are both true: a host that has tickets stores images by them, too")
        if self.store and not self.auth_url:
            raise ValueError("store is true, which needs auth_url: without a user the host may store images anyway")
        missing = [key for key in ("username", "password") if not getattr(self, key)]
        if self.auth_url and missing:
            raise ValueError(f"auth_url is set, which needs {', '.join(missing)}")
        for key in ("auth_url", "endpoint"):
            if (url := getattr(self, key)) and not url.startswith(("http://", "https://")):
                raise ValueError(f"{key} must begin with http:// or https://")


class ComputeSettings(Section, frozen=True, kw_only=True):
    """The agent on a host."""

    cell: Annotated[str, Meta(description="UUID of the cell of the host; only `skep serve compute` reads it")] = ""
    cell_name: Annotated[str, Meta(description="Name of that cell, for log lines and directories")] = ""
    host: Annotated[str, Meta(description="Name of the host; empty: the machine's")] = ""
    health_port: Annotated[int, port_of_health("compute")] = 0
    cpu_allocation_ratio: Annotated[float, Meta(gt=0, description="Virtual CPUs promised per CPU")] = 4.0
    ram_allocation_ratio: Annotated[float, Meta(gt=0, description="Memory promised per memory there is")] = 1.0
    disk_allocation_ratio: Annotated[float, Meta(gt=0, description="Disk promised per disk there is")] = 1.0
    reserved_host_cpus: Annotated[int, Meta(ge=0, description="CPUs kept for the host itself")] = 0
    reserved_host_memory_mb: Annotated[int, Meta(ge=0, description="Memory kept for the host itself in MiB")] = 512
    reserved_host_disk_mb: Annotated[int, Meta(ge=0, description="Disk kept for the host itself in MiB")] = 0
    max_concurrent_builds: Annotated[int, Meta(ge=1, description="Builds a host works on at once")] = 10
    vif_plugging_timeout: Annotated[
        float,
        Meta(
            ge=0,
            description="Seconds for which a build waits, before its guest is made, until Neutron says that the "
            "ports of the server are wired on the host; 0: it does not wait",
        ),
    ] = 300.0
    vif_plugging_is_fatal: Annotated[
        bool,
        Meta(
            description="Whether a build fails whose ports are not wired by then; false: the guest is made all the same"
        ),
    ] = True
    networks_seconds: Annotated[
        float,
        Meta(
            gt=0,
            description="Seconds between two questions which networks, rules and floating addresses the host has to "
            "bring to its guests, where its driver brings those of Skep's own network service",
        ),
    ] = 5.0
    require_signatures: Annotated[
        bool,
        Meta(
            description="Whether orders and answers must be proven once the cell has shown its key; false while you go "
            "back to a release before 0.6.0"
        ),
    ] = True
    report_interval: Annotated[float, Meta(gt=0, description="Seconds between two full reports of a host")] = 10.0
    resume_guests_state_on_host_boot: Annotated[
        bool,
        Meta(
            description="Whether the agent starts guests of ACTIVE servers when its machine has booted; false: their "
            "servers are then SHUTOFF"
        ),
    ] = False
    console_address: Annotated[
        str,
        Meta(
            min_length=1,
            description="Address of this machine where API processes reach the consoles of its guests, at any port; on "
            "several machines one of a network that only they are in",
        ),
    ] = "127.0.0.1"
    exchange_directory: Annotated[
        str,
        Meta(
            description="Directory that all hosts of the cell see, through which the disks of a moved server go from "
            "one to the other, also to another cell whose hosts see it, and in which the hosts of a live migration "
            "meet; empty: the host takes part in cold moves inside its cell only, by `move_address`; hosts of "
            "`skep up` then have a directory of their own cloud, unless `move_address` is set"
        ),
    ] = ""
    move_address: Annotated[
        str,
        Meta(
            description="Address of this machine where the agents of other hosts of the cell fetch the disks of cold "
            "moves, at any port, by TLS in which both prove themselves; on several machines one that all of them "
            "reach; empty: disks go through `exchange_directory` only"
        ),
    ] = ""
    move_mib_per_second: Annotated[
        float,
        Meta(
            ge=0,
            description="MiB per second at which the disks of all cold moves leave this host for others, together; 0: "
            "as fast as they can",
        ),
    ] = 0.0
    driver: Annotated[
        str,
        Meta(min_length=1, description="Driver of the hypervisor, by its name among the entry points `skep.drivers`"),
    ] = "fake"
    driver_options: Annotated[
        dict[str, Any],
        Meta(
            description="Options of a driver of another package, a table `[compute.driver_options]`; the driver "
            "refuses what it does not know",
            extra={"hide": "value"},
        ),
    ] = msgspec.field(default_factory=dict)
    max_hung_calls: Annotated[
        int,
        Meta(
            ge=1,
            description="While this many calls of its driver are past their limit, a host accepts no builds and begins "
            "only calls that read",
        ),
    ] = 4
    providers: Annotated[
        tuple[HostProvider, ...],
        Meta(
            description="Nested resource providers of the host besides those of its driver, each a table "
            "`[[compute.providers]]`"
        ),
    ] = ()
    driver_limits: DriverLimits = DriverLimits()
    images: HostImagesSettings = HostImagesSettings()
    fake: FakeDriverSettings = FakeDriverSettings()

    def __post_init__(self) -> None:
        """Refuses providers that cannot stand beside each other."""
        check_providers(self.providers)
