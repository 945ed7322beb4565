"""Instances as rows: reading them, and what users change about them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.database.cell.tables import instances
from skep.database.constants import constants
from skep.database.stored import dump, load
from skep.domain.decoding import json_decoder
from skep.domain.ids import InstanceUuid
from skep.domain.instances import Fault, Instance, PowerState, RequestedServer, Shelved, State, Task
from skep.domain.moves import Size
from skep.domain.request_specs import RequestSpec
from skep.domain.states import FROZEN, UNSEEN, shown
from skep.domain.vifs import Vif, staying
from skep.domain.volumes import ServerVolume

row = instances.c

ELSEWHERE = row.state.in_(constants(FROZEN | UNSEEN))
"""Says of a row that it may not be where its server is."""

UNBOUND = ""
"""Value of `bound_to` where the ports of a server are on no host."""
ANEW = "!"
"""Value of `bound_to` where the ports of a build are to be made anew before its next host is chosen (`renewals.py`)."""
AWAITS_PORTS = sa.and_(
    sa.func.coalesce(instances.c.bound_to, "") == ANEW, instances.c.state == State.RESCHEDULING.value
)
"""Says of a build that it waits for that: what others find of its bindings is not written meanwhile."""
UNKNOWN = "?"
"""Value of `bound_to` and `volumes_at` where it is not known on which host ports or volumes are, or not all are on the
same. No host has this name: they are bound and connected anew, also where the server is on no host."""

_LIVE = (
    row.uuid,
    row.body,
    row.name,
    row.hostname,
    row.description,
    row.metadata,
    row.tags,
    row.access_ip_v4,
    row.access_ip_v6,
    row.locked,
    row.locked_by,
    row.locked_reason,
    row.shelved,
    row.vifs,
    row.volumes,
    row.availability_zone,
    row.state,
    row.task,
    row.power_state,
    row.attempt,
    row.host,
    row.node,
    row.fault,
    row.updated_at,
    row.launched_at,
    row.terminated_at,
    row.deleted_at,
)


def get(connection: sa.Connection, uuid: InstanceUuid, *, deleted: bool = False) -> Instance | None:
    """Return an instance, staged ones too; deleted ones only when asked."""
    found = connection.execute(_ONE if deleted else _ONE_LIVING, {"of": uuid}).first()
    return None if found is None else instance_of(found)


_ONE = sa.select(*_LIVE).where(row.uuid == sa.bindparam("of"))
_ONE_LIVING = _ONE.where(row.deleted_at.is_(None))
"""Made once: clients ask for single servers again and again."""


def get_many(connection: sa.Connection, uuids: Sequence[str]) -> list[Instance]:
    """Return those of these instances that the cell has, deleted ones too."""
    return [instance_of(found) for found in connection.execute(sa.select(*_LIVE).where(row.uuid.in_(uuids)))]


def change(
    connection: sa.Connection, uuid: InstanceUuid, alter: Callable[[Instance], Instance], now: int
) -> Instance | None:
    """Write what a user changes of an instance and return it as it is then.

    None when there is no such row, or it is staged: whoever placed it lets go of it in a moment.
    """
    query = sa.select(*_LIVE).where(row.uuid == uuid, row.deleted_at.is_(None), row.state.not_in(constants(FROZEN)))
    found = connection.execute(query).first()
    if found is None:
        return None
    before = instance_of(found)
    after = alter(before)
    if after is before:
        return before
    after = msgspec.structs.replace(after, updated_at=now)
    old, new = columns_of(before), columns_of(after)
    values = {name: new[name] for name in _CHANGEABLE if new[name] != old[name]}
    if (after.disk_config, after.pinned_availability_zone) != (before.disk_config, before.pinned_availability_zone):
        kept = {"disk_config": after.disk_config, "pinned_availability_zone": after.pinned_availability_zone}
        values["body"] = dump(msgspec.structs.replace(load(found.body, Instance), **kept))
    connection.execute(instances.update().where(row.uuid == uuid).values(updated_at=now, changed_at=now, **values))
    return after


_CHANGEABLE = (
    "name",
    "hostname",
    "description",
    "metadata",
    "tags",
    "access_ip_v4",
    "access_ip_v6",
    "locked",
    "locked_by",
    "locked_reason",
)
"""Columns of what users change."""


def columns_of(instance: Instance) -> dict[str, Any]:
    """Return the columns of a row for `instance`; those of the build (context, spec, ...) are the caller's."""
    return {
        "uuid": instance.uuid,
        "project_id": instance.project_id,
        "user_id": instance.user_id,
        "name": instance.name,
        "hostname": instance.hostname,
        "description": instance.description,
        "reservation_id": instance.reservation_id,
        "flavorid": instance.flavor.flavorid,
        "image_id": instance.image.id if instance.image else None,
        "metadata": dump(instance.metadata),
        "tags": dump(instance.tags).decode(),
        "access_ip_v4": instance.access_ip_v4,
        "access_ip_v6": instance.access_ip_v6,
        "locked": instance.locked,
        "locked_by": instance.locked_by,
        "locked_reason": instance.locked_reason,
        "availability_zone": instance.availability_zone,
        "state": instance.state.value,
        "task": instance.task.value if instance.task else None,
        "power_state": int(instance.power_state),
        "attempt": instance.attempt,
        "host": instance.host,
        "node": instance.node,
        "shelved": dump(instance.shelved) if instance.shelved else None,
        "vifs": dump(instance.vifs) if instance.vifs else None,
        "bound_to": UNKNOWN if instance.vifs else None,
        "volumes": dump(instance.volumes) if instance.volumes else None,
        "volumes_at": volumes_at(instance.volumes),
        "fault": dump(instance.fault) if instance.fault else None,
        "created_at": instance.created_at,
        "updated_at": instance.updated_at,
        "launched_at": instance.launched_at,
        "body": dump(instance),
    }


BESIDE = "+"
"""Value of `volumes_at` where volumes are connected to a second host, besides that of their server."""


def volumes_at(volumes: Sequence[ServerVolume]) -> str | None:
    """Return the value of `volumes_at` for a server with these volumes; None: it has none.

    Of one that its host has done with, whatever came of that, and of one that leaves, the volume service is still to be
    told.
    """
    hosts = {UNKNOWN} if any(one.is_to_be_told or one.leaving for one in volumes) else {_at(one) for one in volumes}
    return None if not hosts else hosts.pop() if len(hosts) == 1 else UNKNOWN


def _at(volume: ServerVolume) -> str:
    if not volume.attachment_id:
        return UNKNOWN
    return volume.host if volume.beside is None else BESIDE


_REQUESTED = json_decoder(RequestedServer)
_METADATA = json_decoder(dict[str, str])
_TAGS = json_decoder(tuple[str, ...])
_VIFS = json_decoder(tuple[Vif, ...])
_VOLUMES = json_decoder(tuple[ServerVolume, ...])


def instance_of(found: Any) -> Instance:
    """Return the instance of a row whose first columns are `live_columns`. Each fact is read from one of them.

    State and task are those that users see (`domain.states.shown`).
    """
    (
        uuid,
        body,
        name,
        hostname,
        description,
        metadata,
        tags,
        access_ip_v4,
        access_ip_v6,
        locked,
        locked_by,
        locked_reason,
        shelved,
        vifs,
        volumes,
        availability_zone,
        state,
        task,
        power_state,
        attempt,
        host,
        node,
        fault,
        updated_at,
        launched_at,
        terminated_at,
        deleted_at,
    ) = found[: len(_LIVE)]  # by position: a lookup by name takes longer than all else here
    requested = _REQUESTED.decode(body)
    state, task = shown(State(state), Task(task) if task else None, shelved=shelved is not None)
    return Instance(
        project_id=requested.project_id,
        user_id=requested.user_id,
        flavor=requested.flavor,
        created_at=requested.created_at,
        request_id=requested.request_id,
        image=requested.image,
        key_name=requested.key_name,
        key_pair=requested.key_pair,
        block_devices=requested.block_devices,
        config_drive=requested.config_drive,
        disk_config=requested.disk_config,
        user_data=requested.user_data,
        networks=requested.networks,
        requested_networks=requested.requested_networks,
        security_groups=requested.security_groups,
        launch_index=requested.launch_index,
        pinned_availability_zone=requested.pinned_availability_zone,
        scheduler_hints=requested.scheduler_hints,
        boot_roles=requested.boot_roles,
        uuid=uuid,
        name=name,
        hostname=hostname,
        description=description,
        metadata=_METADATA.decode(metadata),
        tags=_TAGS.decode(tags),
        access_ip_v4=access_ip_v4,
        access_ip_v6=access_ip_v6,
        locked=locked,
        locked_by=locked_by,
        locked_reason=locked_reason,
        shelved=load(shelved, Shelved) if shelved else None,
        vifs=staying(_VIFS.decode(vifs)) if vifs else (),
        volumes=_VOLUMES.decode(volumes) if volumes else (),
        availability_zone=availability_zone,
        state=state,
        task=task,
        power_state=PowerState(power_state),
        attempt=attempt,
        host=host,
        node=node,
        fault=load(fault, Fault) if fault else None,
        updated_at=updated_at,
        launched_at=launched_at,
        terminated_at=terminated_at,
        deleted_at=deleted_at,
    )


def resized(body: bytes, spec: bytes, size: Size) -> dict[str, Any]:
    """Return the columns that say what a server is, as they are once it is of another size."""
    return {
        "flavorid": size.flavor.flavorid,
        "body": dump(size.instance(load(body, Instance))),
        "spec": dump(size.spec(load(spec, RequestSpec))),
    }


live_columns = _LIVE


def spec_of(found: Any) -> RequestSpec:
    """Return what was asked for, of a row that has the column `spec`."""
    spec: RequestSpec = load(found.spec, RequestSpec)
    return spec
