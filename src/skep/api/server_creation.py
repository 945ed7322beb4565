"""A create request as it will be stored: instances and spec, made of a body that the rules in `creating` allow."""

from __future__ import annotations

from typing import Any

import msgspec

from skep.api.creating.absent_services import refuse
from skep.api.creating.addresses import access_address
from skep.api.creating.contents import InjectedFile, injected_files, password_of
from skep.api.creating.disk_config import disk_config_of
from skep.api.creating.disks import CONFIG_DRIVE, Disks, disks
from skep.api.creating.hints import hints
from skep.api.creating.inside import devices
from skep.api.creating.names import counts, display_names, hostname_of, requested_hostname
from skep.api.creating.networks import asked_networks
from skep.api.creating.tags import distinct_tags
from skep.api.services import ApiSettings
from skep.domain import request_specs
from skep.domain.block_devices import BlockDevice
from skep.domain.context import RequestContext
from skep.domain.destinations import Destination, destination
from skep.domain.flavors import Flavor
from skep.domain.given_hints import Hints
from skep.domain.groups import GroupRule
from skep.domain.ids import CellUuid, InstanceUuid, new_uuid
from skep.domain.images import Image
from skep.domain.instances import Instance
from skep.domain.key_pairs import KeyPair
from skep.domain.request_specs import RequestSpec
from skep.domain.volumes import is_volume_backed
from skep.neighbours.networks.base import AskedNetworks, ChosenNetworks


class CreateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a body asks for, as far as it can be judged without looking anywhere."""

    server: dict[str, Any]
    min_count: int
    max_count: int
    destination: Destination
    hints: Hints
    networks: AskedNetworks
    disks: Disks
    hostname: str | None
    files: tuple[InjectedFile, ...]
    password: str
    description: str | None
    """Before 2.19 nobody could give one, and the name stands for it."""

    @property
    def flavor_id(self) -> str:
        """The flavor's id; links to it are taken too, as Nova does."""
        return str(self.server["flavorRef"]).rsplit("/", 1)[-1]

    @property
    def key_name(self) -> str | None:
        """The name of one of the caller's key pairs."""
        named: str | None = self.server.get("key_name")
        return named

    @property
    def metadata(self) -> dict[str, str]:
        """What is stored with each server."""
        found: dict[str, str] = self.server.get("metadata") or {}
        return found


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """The objects that a create request names."""

    flavor: Flavor
    image: Image | None
    """What a server boots from as its host, or the volume service, makes it: with its properties. Of a volume that was
    there before, what that keeps of its image. None: nothing is known of it."""
    networks: ChosenNetworks
    disks: tuple[BlockDevice, ...]
    zone: str | None = None
    """The one that was asked for; none where a host is forced that is in another zone."""
    group: GroupRule | None = None
    key_pair: KeyPair | None = None
    cells: dict[str, CellUuid] = {}
    """By the names that hints give them."""

    @property
    def is_volume_backed(self) -> bool:
        """Whether servers boot from volumes, so that they have no image themselves."""
        return is_volume_backed(self.disks)

    @property
    def properties(self) -> dict[str, str]:
        """What the image says of its servers."""
        return {} if self.image is None else self.image.properties


def read(body: dict[str, Any], settings: ApiSettings, version: int) -> CreateRequest:
    """Read a checked body.

    Raises BadRequest, naming the key, for what contradicts itself or what nothing here can do.
    """
    server = body["server"]
    refuse(server)
    min_count, max_count = counts(server, settings.max_servers_per_request)
    return CreateRequest(
        server=server,
        min_count=min_count,
        max_count=max_count,
        destination=destination(server, settings.default_schedule_zone),
        hints=hints(body, settings.filters),
        networks=asked_networks(server, min_count, max_count),
        disks=disks(server, max_count),
        hostname=requested_hostname(server, max_count),
        files=injected_files(server),
        password=password_of(server),
        description=server.get("description") if version >= 19 else server["name"],
    )


def spec_of(
    wanted: CreateRequest, found: Resolved, context: RequestContext, settings: ApiSettings, now: int
) -> RequestSpec:
    """Return what placement will look at, of servers that are asked for `now`.

    Raises BadRequest, naming the key, for extra specs and image properties that contradict each other.
    """
    return request_specs.spec_of(
        project_id=context.project_id,
        user_id=context.user_id,
        flavor=found.flavor,
        image=found.image,
        devices=devices(found.flavor, found.properties, settings),
        destination=msgspec.structs.replace(wanted.destination, zone=found.zone),
        hints=wanted.hints,
        group=found.group,
        cells=found.cells,
        now=now,
        config_drive=has_config_drive(wanted, found, settings),
        boot_from_volume=found.is_volume_backed,
        ports=found.networks.ports,
    )


def has_config_drive(wanted: CreateRequest, found: Resolved, settings: ApiSettings) -> bool:
    """Tell whether the servers get a config drive: by their user's wish, their image's, or the operator's."""
    return bool(wanted.server.get("config_drive")) or needs_config_drive(found.image) or settings.force_config_drive


def needs_config_drive(image: Image | None) -> bool:
    """Tell whether servers of an image have to have a config drive."""
    return image is not None and image.properties.get(CONFIG_DRIVE) == "mandatory"


def instances_of(
    wanted: CreateRequest, found: Resolved, context: RequestContext, now: int, *, config_drive: bool
) -> tuple[Instance, ...]:
    """Return the servers, the first of which are stored if the quota does not allow all."""
    server = wanted.server
    first = Instance(
        uuid=InstanceUuid(new_uuid()),
        project_id=context.project_id,
        user_id=context.user_id,
        name=server["name"],
        hostname=wanted.hostname or "",
        flavor=found.flavor,
        created_at=now,
        request_id=context.request_id,
        image=None if found.is_volume_backed else found.image,
        key_name=wanted.key_name,
        key_pair=found.key_pair,
        description=wanted.description,
        metadata=wanted.metadata,
        tags=distinct_tags(server.get("tags")),
        block_devices=found.disks,
        config_drive=config_drive,
        disk_config=disk_config_of(server, found.image),
        access_ip_v4=access_address(server.get("accessIPv4")),
        access_ip_v6=access_address(server.get("accessIPv6")),
        user_data=server.get("user_data"),
        networks=found.networks.networks,
        requested_networks=found.networks.named,
        security_groups=found.networks.security_groups,
        availability_zone=found.zone,
        pinned_availability_zone=found.zone,
        scheduler_hints=wanted.hints.given,
        boot_roles=context.roles,
    )
    members = []
    for index, name in enumerate(display_names(first.name, wanted.max_count)[: found.networks.count]):
        uuid = first.uuid if index == 0 else InstanceUuid(new_uuid())
        hostname = wanted.hostname or hostname_of(first.name, uuid, index + 1 if wanted.max_count > 1 else None)
        members.append(msgspec.structs.replace(first, uuid=uuid, name=name, hostname=hostname, launch_index=index))
    return tuple(members)
