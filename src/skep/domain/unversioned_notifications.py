"""Nova's unversioned notifications, made from the versioned ones: a plain function for each kind of payload.

`event_table.TABLE` has the names, and which event types have no such form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from skep.domain import event_table
from skep.domain.context import RequestContext

Data = Mapping[str, Any]
"""What a versioned payload says."""

SUCCESS = "Success"
TASK = "compute_task"
"""Conductors spoke under this name of what they found no host for."""


def unversioned(
    event_type: str, payload: Mapping[str, Any], context: RequestContext
) -> tuple[str, dict[str, Any]] | None:
    """Return the unversioned event type and payload of a versioned notification; None where there is none."""
    name = event_table.unversioned(event_type)
    if name is None:
        return None
    stem, _ = event_table.split(event_type)
    make = _MAKERS.get(stem.partition(".")[0])
    if make is None:
        return None
    return name, make(event_type, data_of(payload), context)


def publisher(event_type: str, publisher_id: str) -> str:
    """Return who speaks, in the form of old: `compute.host1` for `nova-compute:host1`."""
    source, _, host = publisher_id.partition(":")
    task, _, _ = event_type.partition(".")
    return f"{task if task == TASK else source.removeprefix('nova-')}.{host}"


def data_of(payload: Mapping[str, Any]) -> Data:
    """Return what a versioned object says."""
    found: Data = payload["nova_object.data"]
    return found


def instance(data: Data) -> dict[str, Any]:
    """Return what is told of a server in every unversioned notification about it."""
    flavor = data_of(data["flavor"])
    return {
        "tenant_id": data["tenant_id"],
        "user_id": data["user_id"],
        "instance_id": data["uuid"],
        "display_name": data["display_name"],
        "reservation_id": data["reservation_id"],
        "hostname": data["host_name"],
        "instance_type": flavor["name"],
        "instance_type_id": None,
        "instance_flavor_id": flavor["flavorid"],
        "architecture": data["architecture"],
        "memory_mb": flavor["memory_mb"],
        "disk_gb": flavor["root_gb"] + flavor["ephemeral_gb"],
        "vcpus": flavor["vcpus"],
        "root_gb": flavor["root_gb"],
        "ephemeral_gb": flavor["ephemeral_gb"],
        "host": data["host"],
        "node": data["node"],
        "availability_zone": data["availability_zone"],
        "cell_name": "",
        "created_at": _with_zone(data["created_at"]),
        "launched_at": _with_fraction(data["launched_at"]),
        "terminated_at": _with_fraction(data["terminated_at"]),
        "deleted_at": _with_fraction(data["deleted_at"]),
        "image_ref_url": data["image_uuid"],
        "image_meta": {"base_image_ref": data["image_uuid"]} if data["image_uuid"] else {},
        "os_type": data["os_type"],
        "kernel_id": data["kernel_id"],
        "ramdisk_id": data["ramdisk_id"],
        "state": data["state"],
        "state_description": data["task_state"] or "",
        "progress": data["progress"] or "",
        "access_ip_v4": None,
        "access_ip_v6": None,
        "fixed_ips": [_fixed_ip(data_of(one)) for one in data["ip_addresses"]],
        "metadata": dict(data["metadata"]),
    }


def _of_instance(event_type: str, data: Data, _context: RequestContext) -> dict[str, Any]:
    told = instance(data)
    if "state_update" in data:
        told |= _update(data)
    if data.get("new_flavor") is not None:
        told |= {"new_instance_type": data_of(data["new_flavor"])["name"], "new_instance_type_id": None}
    if data.get("fault") is not None:
        fault = data_of(data["fault"])
        told |= {"exception": fault["exception"], "message": fault["exception_message"], "code": 500}
    elif event_type == "instance.create.end":
        told["message"] = SUCCESS
    return told


def _update(data: Data) -> dict[str, Any]:
    change = data_of(data["state_update"])
    told = {
        "old_state": change["old_state"] if change["old_state"] is not None else change["state"],
        "state": change["state"],
        "old_task_state": change["old_task_state"],
        "new_task_state": change["new_task_state"],
        "audit_period_beginning": "",
        "audit_period_ending": "",
        "bandwidth": {},
        "tags": list(data["tags"]),
    }
    if data["old_display_name"] is not None:
        told["old_display_name"] = data["old_display_name"]
    return told


def _of_task(event_type: str, data: Data, _context: RequestContext) -> dict[str, Any]:
    spec = request_spec(data_of(data["request_spec"]))
    return {
        "request_spec": spec,
        "instance_properties": spec["instance_properties"],
        "instance_id": data["instance_uuid"],
        "state": data["state"],
        "method": event_type.split(".")[1],
        "reason": data_of(data["reason"])["exception_message"],
    }


def _of_scheduler(_event_type: str, data: Data, _context: RequestContext) -> dict[str, Any]:
    return {"request_spec": request_spec(data)}


def request_spec(data: Data) -> dict[str, Any]:
    """Return what was asked of the scheduler."""
    flavor = data_of(data["flavor"])
    sizes = {name: flavor[name] for name in ("memory_mb", "vcpus", "root_gb", "ephemeral_gb")}
    return {
        "num_instances": data["num_instances"],
        "image": dict(data["image"] or {}),
        "instance_type": {
            **sizes,
            "name": flavor["name"],
            "flavorid": flavor["flavorid"],
            "swap": flavor["swap"],
            "extra_specs": dict(flavor["extra_specs"]),
        },
        "instance_properties": {
            **sizes,
            "uuid": data["instance_uuid"],
            "project_id": data["project_id"],
            "user_id": data["user_id"],
            "availability_zone": data["availability_zone"],
        },
    }


def _of_key_pair(_event_type: str, data: Data, context: RequestContext) -> dict[str, Any]:
    return {"tenant_id": context.project_id, "user_id": data["user_id"], "key_name": data["name"]}


_MAKERS: Mapping[str, Callable[[str, Data, RequestContext], dict[str, Any]]] = {
    "instance": _of_instance,
    TASK: _of_task,
    "scheduler": _of_scheduler,
    "keypair": _of_key_pair,
}
"""The first word of an event type -> what makes its unversioned payload."""


def _fixed_ip(data: Data) -> dict[str, Any]:
    return {
        "address": data["address"],
        "type": "fixed",
        "version": data["version"],
        "meta": dict(data["meta"]),
        "floating_ips": [],
        "label": data["label"],
        "vif_mac": data["mac"],
    }


def _with_zone(time: str) -> str:
    """Return a time of the versioned form as Python writes one with its zone: `2026-01-31 12:00:00+00:00`."""
    return time.replace("T", " ").replace("Z", "+00:00")


def _with_fraction(time: str | None) -> str:
    """Return a time of the versioned form without its zone and with a fraction; empty where there is none."""
    return "" if time is None else time.replace("Z", ".000000")
