"""Servers as answers show them: every key of the newest microversion that the caller may see.

Whether a server is still a build request, a row of a cell or of cell0 makes no difference to its keys.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from skep.api.links import Links
from skep.database.api.instance_mappings import Mapping as InstanceMapping
from skep.domain.clock import isoformat, isoformat_micro
from skep.domain.flavors import Flavor
from skep.domain.given_hints import as_nova_shows
from skep.domain.images import Image
from skep.domain.instances import Fault, Instance, State, instance_name
from skep.domain.request_specs import RequestSpec
from skep.domain.states import status, task_state, vm_state
from skep.domain.vifs import addresses_of
from skep.domain.volumes import root_of, staying

Json = dict[str, Any]

WITH_PROGRESS = frozenset({"ACTIVE", "BUILD", "MIGRATING", "REBUILD"})
"""Statuses whose servers show a progress."""
DEFAULT_SECURITY_GROUP = {"name": "default"}
"""Shown of servers without interfaces."""


@lru_cache(maxsize=8192)
def host_id(project_id: str, host: str | None) -> str:
    """Return the name by which a project knows a host: always the same, and telling nothing of the host."""
    return hashlib.sha224(f"{project_id}{host}".encode()).hexdigest() if host else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerView:
    """Shows servers to one caller: what this one may see was asked before."""

    links: Links
    extended: bool = False
    """Whether it may see the attributes for admins."""
    hostname: bool = False
    """Whether it may see the hostname (everybody since 2.90)."""
    extra_specs: bool = False
    admin: bool = False
    host_status: Mapping[str, str] | None = None
    """Host -> its status; None: the key is left out."""
    only_unknown: bool = False
    """Whether no other status than UNKNOWN may be seen."""
    flavors: dict[str, tuple[Flavor, Json]] = field(default_factory=dict)
    """Those shown already, by id: a list has many servers of few flavors."""

    def basic(self, uuid: str, name: str) -> Json:
        """Return id, name and links."""
        return {"id": uuid, "name": name, "links": self.links.both("servers", uuid)}

    def whole(self, instance: Instance, groups: tuple[str, ...] = ()) -> Json:
        """Return all keys."""
        shown_status = status(instance.state, instance.task)
        shown: Json = {
            "id": instance.uuid,
            "name": instance.name,
            "status": shown_status,
            "tenant_id": instance.project_id,
            "user_id": instance.user_id,
            "metadata": instance.metadata,
            "hostId": host_id(instance.project_id, instance.host),
            "image": self._image(instance.image),
            "flavor": self._flavor(instance.flavor),
            "created": isoformat(instance.created_at),
            "updated": isoformat(instance.updated_at or instance.created_at),
            "addresses": addresses(instance),
            "accessIPv4": instance.access_ip_v4 or "",
            "accessIPv6": instance.access_ip_v6 or "",
            "links": self.links.both("servers", instance.uuid),
            "OS-DCF:diskConfig": instance.disk_config,
            "locked": instance.locked,
            "locked_reason": instance.locked_reason,
            "description": instance.description,
            "tags": list(instance.tags),
            "trusted_image_certificates": None,
            "pinned_availability_zone": instance.pinned_availability_zone,
            "scheduler_hints": as_nova_shows(instance.scheduler_hints),
            "OS-EXT-AZ:availability_zone": instance.availability_zone or "",
            "config_drive": "True" if instance.config_drive else "",
            "key_name": instance.key_name,
            "OS-SRV-USG:launched_at": _micro(instance.launched_at),
            "OS-SRV-USG:terminated_at": _micro(instance.terminated_at),
            "OS-EXT-STS:task_state": task_state(instance.state, instance.task),
            "OS-EXT-STS:vm_state": vm_state(instance.state),
            "OS-EXT-STS:power_state": int(instance.power_state),
            **({"security_groups": named} if (named := security_groups(instance)) else {}),
            "os-extended-volumes:volumes_attached": [
                {"id": one.volume_id, "delete_on_termination": one.delete_on_termination}
                for one in staying(instance.volumes)
            ],
            "server_groups": list(groups),
        }
        if shown_status in WITH_PROGRESS:
            shown["progress"] = 0
        if instance.fault is not None and instance.state in (State.ERROR, State.DELETED):
            shown["fault"] = self._fault(instance.fault)
        if self.extended:
            shown.update(_extended(instance))
        if self.hostname:
            shown["OS-EXT-SRV-ATTR:hostname"] = instance.hostname
        if self.host_status is not None:
            self._add_host_status(shown, instance)
        return shown

    def unknown(self, mapping: InstanceMapping) -> Json:
        """Return what is known of a server whose cell cannot be read (2.69)."""
        return {
            "id": mapping.instance,
            "status": "UNKNOWN",
            "tenant_id": mapping.project_id,
            "created": isoformat(mapping.created_at),
            "links": self.links.both("servers", mapping.instance),
        }

    def unknown_whole(self, mapping: InstanceMapping, spec: RequestSpec, groups: tuple[str, ...]) -> Json:
        """Return the same with what was asked for when the server was made: for a GET of it alone."""
        return {
            **self.unknown(mapping),
            "user_id": spec.user_id,
            "image": self._image(None if spec.boot_from_volume else spec.image),
            "flavor": self._flavor(spec.flavor),
            "OS-EXT-AZ:availability_zone": spec.availability_zone or "UNKNOWN",
            "OS-EXT-STS:power_state": 0,
            "server_groups": list(groups),
            "pinned_availability_zone": spec.availability_zone,
            "scheduler_hints": as_nova_shows(spec.scheduler_hints),
        }

    def _add_host_status(self, shown: Json, instance: Instance) -> None:
        assert self.host_status is not None
        found = self.host_status.get(instance.host, "UNKNOWN") if instance.host else ""
        if not self.only_unknown or found == "UNKNOWN":
            shown["host_status"] = found

    def _image(self, image: Image | None) -> Json | str:
        if image is None:
            return ""
        return {"id": image.id, "links": [self._bookmark("images", image.id)], "properties": image.properties}

    def _flavor(self, flavor: Flavor) -> Json:
        known = self.flavors.get(flavor.flavorid)
        if known is not None and known[0] == flavor:
            return known[1]
        shown: Json = {
            "id": flavor.flavorid,
            "links": [self._bookmark("flavors", flavor.flavorid)],
            "original_name": flavor.name,
            "vcpus": flavor.vcpus,
            "ram": flavor.memory_mb,
            "disk": flavor.root_gb,
            "ephemeral": flavor.ephemeral_gb,
            "swap": flavor.swap_mb,
        }
        if self.extra_specs:
            shown["extra_specs"] = flavor.extra_specs
        self.flavors[flavor.flavorid] = (flavor, shown)
        return shown

    def _bookmark(self, collection: str, identifier: str) -> Json:
        return {"rel": "bookmark", "href": self.links.bookmark(collection, identifier)}

    def _fault(self, fault: Fault) -> Json:
        shown: Json = {"code": fault.code, "created": isoformat(fault.created_at), "message": fault.message}
        if fault.details and (self.admin or fault.code != 500):
            shown["details"] = fault.details
        return shown


def _extended(instance: Instance) -> Json:
    return {
        "OS-EXT-SRV-ATTR:host": instance.host,
        "OS-EXT-SRV-ATTR:hypervisor_hostname": instance.host,
        "OS-EXT-SRV-ATTR:instance_name": instance_name(instance.uuid),
        "OS-EXT-SRV-ATTR:reservation_id": instance.reservation_id,
        "OS-EXT-SRV-ATTR:launch_index": instance.launch_index,
        "OS-EXT-SRV-ATTR:kernel_id": "",
        "OS-EXT-SRV-ATTR:ramdisk_id": "",
        "OS-EXT-SRV-ATTR:root_device_name": root_of(instance.block_devices),
        "OS-EXT-SRV-ATTR:user_data": instance.user_data,
    }


def addresses(instance: Instance) -> dict[str, list[Json]]:
    """Show the addresses of a server by the names of their networks."""
    return {
        network: [
            {
                "version": one.version,
                "addr": one.address,
                "OS-EXT-IPS:type": one.kind,
                "OS-EXT-IPS-MAC:mac_addr": one.mac_address,
            }
            for one in found
        ]
        for network, found in addresses_of(instance.vifs).items()
    }


def security_groups(instance: Instance) -> list[dict[str, str]]:
    """Show the security groups of a server's interfaces, each once. Without any, Nova shows no list either."""
    if not instance.vifs:
        return [DEFAULT_SECURITY_GROUP]
    names = dict.fromkeys(group.name for vif in instance.vifs for group in vif.groups)
    return [{"name": name} for name in names]


def _micro(at: int | None) -> str | None:
    return None if at is None else isoformat_micro(at)
