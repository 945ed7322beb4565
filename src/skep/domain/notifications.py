"""Payloads of Nova's versioned notifications in the build path: facts of an instance in Nova's names.

Source: Nova's notification reference and `instance.*` samples (names, versions and order of the events).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from skep.domain.clock import isoformat
from skep.domain.context import RequestContext
from skep.domain.flavors import Flavor
from skep.domain.given_hints import as_nova_shows
from skep.domain.instances import Fault, Instance, State, Task, instance_name
from skep.domain.key_pairs import KeyPair
from skep.domain.request_specs import RequestSpec
from skep.domain.states import task_state, vm_state
from skep.domain.vifs import Vif, VifAddress, VifSubnet, fixed_addresses
from skep.domain.volumes import ServerVolume, staying

NOTHING: Mapping[str, Any] = MappingProxyType({})
IMAGE_ID = "image_id"
"""The argument of actions that make an image: which one."""

VOLUME_ID = "volume_id"
"""The argument of actions about a volume: which one."""
SWAPPED = ("old_volume_id", "new_volume_id")
"""Those of a swap that are told of."""

RESCUE_IMAGE = "rescue_image"
"""The argument of a rescue: what its disk is made from."""

_NAMED = re.compile(r"([A-Z][A-Za-z]+): ")
"""How an error begins whose kind is known."""


def payload(name: str, version: str, data: dict[str, Any]) -> dict[str, Any]:
    """Wrap `data` as Nova's notification object `name`."""
    return {
        "nova_object.name": name,
        "nova_object.namespace": "nova",
        "nova_object.version": version,
        "nova_object.data": data,
    }


def flavor(of: Flavor, projects: Sequence[str] | None = None) -> dict[str, Any]:
    """Return a FlavorPayload; `projects`: who may use one that is not public, None where that is not told."""
    return payload(
        "FlavorPayload",
        "1.4",
        {
            "flavorid": of.flavorid,
            "name": of.name,
            "vcpus": of.vcpus,
            "memory_mb": of.memory_mb,
            "root_gb": of.root_gb,
            "ephemeral_gb": of.ephemeral_gb,
            "swap": of.swap_mb,
            "rxtx_factor": of.rxtx_factor,
            "vcpu_weight": 0,
            "disabled": of.disabled,
            "is_public": of.is_public,
            "extra_specs": of.extra_specs,
            "projects": None if projects is None else list(projects),
            "description": of.description,
        },
    )


def _instance(of: Instance) -> dict[str, Any]:
    return {
        "uuid": of.uuid,
        "user_id": of.user_id,
        "tenant_id": of.project_id,
        "reservation_id": of.request_id,
        "display_name": of.name,
        "display_description": of.description,
        "host_name": of.hostname,
        "host": of.host,
        "node": of.node,
        "os_type": None,
        "architecture": None,
        "availability_zone": of.availability_zone,
        "flavor": flavor(of.flavor),
        "image_uuid": of.image.id if of.image else "",
        "key_name": of.key_name,
        "kernel_id": "",
        "ramdisk_id": "",
        "created_at": isoformat(of.created_at),
        "launched_at": isoformat(of.launched_at) if of.launched_at else None,
        "terminated_at": isoformat(of.terminated_at) if of.terminated_at else None,
        "deleted_at": isoformat(of.deleted_at) if of.deleted_at else None,
        "updated_at": isoformat(of.updated_at) if of.updated_at else None,
        "state": vm_state(of.state),
        "power_state": of.power_state.name.lower(),
        "task_state": task_state(of.state, of.task),
        "progress": 0,
        "ip_addresses": [address(vif, subnet, one) for vif, subnet, one in fixed_addresses(of.vifs)],
        "block_devices": [block_device(one) for one in staying(of.volumes)],
        "metadata": of.metadata,
        "locked": of.locked,
        "locked_reason": of.locked_reason,
        "auto_disk_config": of.disk_config,
    }


def block_device(of: ServerVolume) -> dict[str, Any]:
    """Return a BlockDevicePayload."""
    data = {
        "device_name": of.device,
        "tag": of.tag,
        "delete_on_termination": of.delete_on_termination,
        "volume_id": of.volume_id,
        "boot_index": of.boot_index,
    }
    return payload("BlockDevicePayload", "1.0", data)


def address(of: Vif, subnet: VifSubnet, at: VifAddress) -> dict[str, Any]:
    """Return an IpPayload."""
    data = {
        "mac": of.mac_address,
        "meta": {},
        "port_uuid": of.id,
        "version": subnet.version,
        "address": at.address,
        "device_name": of.device_name,
        "label": of.network_name,
    }
    return payload("IpPayload", "1.0", data)


def update(
    of: Instance, old_state: State | None, old_task: Task | None = None, *, old_name: str | None = None
) -> dict[str, Any]:
    """Return the payload of `instance.update`: the instance as it is now, the state and task it had, and the name where
    it had another.
    """
    change = payload(
        "InstanceStateUpdatePayload",
        "1.0",
        {
            "old_state": vm_state(old_state) if old_state else None,
            "state": vm_state(of.state),
            "old_task_state": task_state(old_state, old_task) if old_state else None,
            "new_task_state": task_state(of.state, of.task),
        },
    )
    return payload(
        "InstanceUpdatePayload",
        "2.1",
        {**_instance(of), "state_update": change, "old_display_name": old_name, "tags": list(of.tags)},
    )


def action(
    of: Instance, context: RequestContext, fault: Fault | None = None, arguments: Mapping[str, Any] = NOTHING
) -> dict[str, Any]:
    """Return the payload of `instance.delete.*` and other actions."""
    data = _action(of, context, fault)
    if IMAGE_ID in arguments:
        return payload("InstanceActionSnapshotPayload", "1.9", {**data, "snapshot_image_id": arguments[IMAGE_ID]})
    if VOLUME_ID in arguments:
        return payload("InstanceActionVolumePayload", "1.6", {**data, "volume_id": arguments[VOLUME_ID]})
    if SWAPPED[0] in arguments:
        swapped = {key: arguments[key] for key in SWAPPED}
        return payload("InstanceActionVolumeSwapPayload", "1.8", {**data, **swapped})
    if RESCUE_IMAGE in arguments:
        image = (arguments[RESCUE_IMAGE] or {}).get("id")
        return payload("InstanceActionRescuePayload", "1.3", {**data, "rescue_image_ref": image})
    return payload("InstanceActionPayload", "1.8", data)


def resize_prep(of: Instance, context: RequestContext, to: Flavor) -> dict[str, Any]:
    """Return the payload of `instance.resize_prep.*`: what the server is to become, also where it stays what it is."""
    data = {**_action(of, context, None), "new_flavor": flavor(to)}
    return payload("InstanceActionResizePrepPayload", "1.3", data)


def rebuild(of: Instance, context: RequestContext, fault: Fault | None = None) -> dict[str, Any]:
    """Return the payload of `instance.rebuild_scheduled` and `instance.rebuild.*`."""
    data = {**_action(of, context, fault), "trusted_image_certificates": None}
    return payload("InstanceActionRebuildPayload", "1.9", data)


def create(of: Instance, context: RequestContext, fault: Fault | None = None) -> dict[str, Any]:
    """Return the payload of `instance.create.start`, `.end` and `.error`."""
    data = _action(of, context, fault)
    data |= {
        "keypairs": [] if of.key_pair is None else [key_pair(of.key_pair, of.user_id)],
        "tags": list(of.tags),
        "trusted_image_certificates": None,
        "instance_name": instance_name(of.uuid),
    }
    return payload("InstanceCreatePayload", "1.13", data)


def key_pair(of: KeyPair, user_id: str) -> dict[str, Any]:
    """Return a KeypairPayload."""
    data = {
        "user_id": user_id,
        "name": of.name,
        "public_key": of.public_key,
        "fingerprint": of.fingerprint,
        "type": of.type,
    }
    return payload("KeypairPayload", "1.0", data)


class AggregateFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is told of an aggregate."""

    id: int
    uuid: str
    name: str
    hosts: tuple[str, ...]
    metadata: dict[str, str]


def aggregate(of: AggregateFacts) -> dict[str, Any]:
    """Return an AggregatePayload."""
    return payload("AggregatePayload", "1.1", msgspec.to_builtins(of))


class ServerGroupFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is told of a server group."""

    uuid: str
    name: str
    project_id: str
    user_id: str
    policy: str
    max_server_per_host: int | None
    members: tuple[str, ...]
    """Servers."""


def server_group(of: ServerGroupFacts) -> dict[str, Any]:
    """Return a ServerGroupPayload."""
    most = of.max_server_per_host
    data = {
        "uuid": of.uuid,
        "name": of.name,
        "project_id": of.project_id,
        "user_id": of.user_id,
        "policies": [of.policy],
        "policy": of.policy,
        "rules": {} if most is None else {"max_server_per_host": str(most)},
        "members": list(of.members),
        "hosts": None,
    }
    return payload("ServerGroupPayload", "1.1", data)


def cached(
    of: AggregateFacts, host: str, *, cached: list[str], failed: list[str], index: int, total: int
) -> dict[str, Any]:
    """Return an AggregateCachePayload: the images that one of its hosts has and has not, the `index`-th to answer."""
    data = {
        "id": of.id,
        "uuid": of.uuid,
        "name": of.name,
        "host": host,
        "images_cached": cached,
        "images_failed": failed,
        "index": index,
        "total": total,
    }
    return payload("AggregateCachePayload", "1.0", data)


def _action(of: Instance, context: RequestContext, fault: Fault | None) -> dict[str, Any]:
    return {
        **_instance(of),
        "fault": _exception(fault.message) if fault else None,
        "request_id": context.request_id,
        "action_initiator_user": context.user_id,
        "action_initiator_project": context.project_id,
    }


def _exception(message: str) -> dict[str, Any]:
    named = _NAMED.match(message)
    return payload(
        "ExceptionPayload",
        "1.1",
        {
            "exception": "NoValidHost"
            if message.startswith("No valid host")
            else named[1]
            if named
            else "BuildFailure",
            "exception_message": message,
            "function_name": "",
            "module_name": "",
            "traceback": "",
        },
    )


def request_spec(of: RequestSpec, instance_uuid: str, count: int) -> dict[str, Any]:
    """Return the payload of `scheduler.select_destinations.*`."""
    return payload(
        "RequestSpecPayload",
        "1.1",
        {
            "instance_uuid": instance_uuid,
            "project_id": of.project_id,
            "user_id": of.user_id,
            "availability_zone": of.availability_zone,
            "num_instances": count,
            "flavor": flavor(of.flavor),
            "image": {"id": of.image.id} if of.image and of.image.id else None,
            "force_hosts": [of.forced_host] if of.forced_host else None,
            "force_nodes": [of.forced_node] if of.forced_node else None,
            "ignore_hosts": list(of.ignore_hosts) or None,
            "instance_group": {"uuid": of.group.uuid, "policy": of.group.policy} if of.group else None,
            "requested_destination": of.requested_host or of.requested_node,
            "scheduler_hints": as_nova_shows(of.scheduler_hints),
            "security_groups": [],
            "numa_topology": None,
            "pci_requests": None,
            "retry": None,
        },
    )


def compute_task_error(of: Instance, spec: RequestSpec, message: str) -> dict[str, Any]:
    """Return the payload of `compute_task.build_instances.error`."""
    return payload(
        "ComputeTaskPayload",
        "1.0",
        {
            "instance_uuid": of.uuid,
            "request_spec": request_spec(spec, of.uuid, 1),
            "state": "error",
            "reason": _exception(message),
        },
    )
