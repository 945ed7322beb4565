"""`POST /servers`: everything is checked, then one transaction stores the request, then the super conductor is told."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
import structlog

from skep.api import server_creation, telling
from skep.api.creating import repeats
from skep.api.creating.contents import Secrets, check_limits
from skep.api.creating.disk_config import check_disk_config
from skep.api.creating.disks import NO_IMAGE, ZERO_DISK, check_boot_volume, check_image
from skep.api.creating.hints import sent_as
from skep.api.creating.repeats import Given
from skep.api.handlers.key_pairs import named_key_pair
from skep.api.handlers.server_hosts import host_states
from skep.api.handlers.server_images import usable_image
from skep.api.requests import Answer, ApiRequest
from skep.api.server_creation import CreateRequest, Resolved
from skep.api.services import ApiServices
from skep.database import Connection
from skep.database.api import (
    aggregates,
    build_requests,
    cells,
    flavors,
    host_mappings,
    kept_answers,
    quotas,
    server_groups,
)
from skep.database.api.build_requests import NewRequest
from skep.database.api.kept_answers import KeptAnswer, KeyedCreate
from skep.domain.block_devices import BlockDevice, boot_device, check_volume_of_image, root_name
from skep.domain.destinations import Destination, check_one_way
from skep.domain.errors import Forbidden, OutcomeUnknown, QuotaExceeded, SkepError
from skep.domain.flavors import Flavor
from skep.domain.given_hints import cells_named
from skep.domain.groups import GroupRule
from skep.domain.ids import CellUuid, ProjectId, reservation_id
from skep.domain.images import Image
from skep.domain.instances import Instance
from skep.domain.invalid_input import InvalidHint, invalid_field, invalid_hint
from skep.domain.quotas import charge_of
from skep.domain.volumes import with_names
from skep.messages.to_super_conductor import ScheduleAndBuildInstances
from skep.neighbours.volumes.base import AskedVolumes, ChosenVolumes
from skep.transport.base import SUPER_CONDUCTOR

log = structlog.get_logger("skep.api.servers")

SERVERS = "os_compute_api:servers"
PORTS_WITH_RESOURCES_SINCE = 72
"""The microversion since which a create takes ports that ask for resources of their host, as in Nova."""


async def create(request: ApiRequest) -> Answer:
    """Store a request for one or more servers; they are placed and built afterwards."""
    wanted = server_creation.read(request.body, request.services.settings, request.version)
    _authorize(request, wanted)
    question = repeats.question_of(request)
    if question is not None:
        unit = partial(kept_answers.find, question=question, now=request.services.clock.now())
        kept = await request.services.database.read(unit)
        if kept is not None:
            return _answer(request, repeats.kept_answer(request, kept), replayed=True)
        request.refuse_overload()
    try:
        found = await _resolve(request, wanted)
        stored = await _store(request, wanted, found, question)
    except InvalidHint as error:
        raise error.under(sent_as(request.body)) from error
    if isinstance(stored, KeptAnswer):
        return _answer(request, repeats.kept_answer(request, stored), replayed=True)
    await _tell(request)
    return _answer(request, stored)


def _answer(request: ApiRequest, given: Given, *, replayed: bool = False) -> Answer:
    """Return what a create is answered; a retry under one key gets what the first one got."""
    headers = {"Idempotency-Replayed": "true"} if replayed else {}
    if given.reservation_id is not None:
        return Answer({"reservation_id": given.reservation_id}, headers=headers)
    uuid = given.servers[0]
    shown: dict[str, Any] = {
        "id": uuid,
        "links": request.links.both("servers", uuid),
        "OS-DCF:diskConfig": given.disk_config,
        "security_groups": request.body["server"].get("security_groups", [{"name": "default"}]),
        "adminPass": given.admin_password,
    }
    return Answer({"server": shown}, headers={"Location": request.links.own("servers", uuid), **headers})


def _authorize(request: ApiRequest, wanted: CreateRequest) -> None:
    """Ask the further rules that a create may need."""
    if wanted.networks.networks in ("auto", "named"):
        request.authorize(rule=f"{SERVERS}:create:attach_network")
    if wanted.disks.v2 or wanted.disks.v1:
        request.authorize(rule=f"{SERVERS}:create:attach_volume")
    if wanted.destination.is_forced:
        request.authorize(rule=f"{SERVERS}:create:forced_host")
    if wanted.destination.is_requested:
        request.authorize(rule="compute:servers:create:requested_destination")
    check_one_way(wanted.destination, wanted.server.get("availability_zone"))
    if wanted.hints.cells and not request.context.is_admin:
        raise Forbidden("The hints target_cell and different_cell are for administrators.")


async def _resolve(request: ApiRequest, wanted: CreateRequest) -> Resolved:
    """Find the objects that a create request names.

    Raises BadRequest for what is not there or does not fit together.
    """
    flavor = await _flavor(request, wanted.flavor_id)
    given = None if wanted.disks.image_id is None else await _image(request, wanted.disks.image_id)
    chosen = await _disks(request, wanted, given, flavor)
    image, disks = _boot_image(wanted, chosen, given, flavor), _with_names(chosen, given)
    wanted = msgspec.structs.replace(wanted, destination=msgspec.structs.replace(wanted.destination, zone=chosen.zone))
    networks = await request.services.networks.choose(wanted.networks, request.context, request.token)
    if networks.asking is not None and request.version < PORTS_WITH_RESOURCES_SINCE:
        field, port = f"server.networks[{networks.asking}].port", networks.named[networks.asking].port_id
        raise invalid_field(field, port, "a port without a resource_request before microversion 2.72")
    where = wanted.destination
    default_zone = request.services.settings.default_availability_zone
    key_pair = await named_key_pair(request, wanted.key_name, "server")
    if not (where.hosts or where.nodes or wanted.hints.group or wanted.hints.cells or where.zone):
        return Resolved(flavor=flavor, image=image, networks=networks, disks=disks, key_pair=key_pair)
    project = None if request.context.is_admin else request.context.project_id
    unit = partial(_look_up, wanted=wanted, project=project, default_zone=default_zone)
    group, unknown_nodes, named, zone = await request.services.database.read(unit)
    if unknown_nodes or (where.requested_host is not None and where.requested_node is not None):
        await _check_hypervisors(request, unknown_nodes, where)
    return Resolved(
        flavor=flavor,
        image=image,
        networks=networks,
        disks=disks,
        zone=zone,
        key_pair=key_pair,
        group=group,
        cells=named,
    )


async def _disks(request: ApiRequest, wanted: CreateRequest, image: Image | None, flavor: Flavor) -> ChosenVolumes:
    """Return the disks of each server. Raises BadRequest for what is not there or does not fit together."""
    devices = wanted.disks.all(image, flavor)
    if image is not None:
        onto_volume = boot_device(devices).device.destination_type == "volume"
        check_image(image, flavor, may_have_no_disk=request.allowed(ZERO_DISK), onto_volume=onto_volume)
        check_disk_config(wanted.server, image, "server")
    asked = AskedVolumes(devices=devices, zone=wanted.destination.zone, multiattach=request.version >= 60)
    chosen = await request.services.volumes.choose(asked, request.context, request.token)
    for one in chosen.devices:
        if (one.device.source_type, one.device.destination_type) == ("image", "volume"):
            assert one.device.uuid is not None
            source = await usable_image(request, one.device.uuid)
            if source is None:
                expected = "the id of an image that the project may use"
                raise invalid_field(f"{one.where}.uuid", one.device.uuid, expected)
            check_volume_of_image(one, source)
    return chosen


def _boot_image(wanted: CreateRequest, chosen: ChosenVolumes, image: Image | None, flavor: Flavor) -> Image | None:
    """Return what placement is told of what servers boot from.

    Raises BadRequest where that does not fit the flavor, or a server would boot from nothing.
    """
    boot = boot_device(chosen.devices)
    if chosen.boot is not None:
        kept = chosen.boot
        found = Image(id="", min_disk=kept.min_disk, min_ram=kept.min_ram, properties=kept.properties)
        check_boot_volume(boot, found, flavor)
        return found
    if image is None and boot.device.destination_type == "local":
        raise invalid_field("server.imageRef", wanted.disks.image_ref, NO_IMAGE)
    return image


def _with_names(chosen: ChosenVolumes, image: Image | None) -> tuple[BlockDevice, ...]:
    """Return the disks of servers, with names where some are volumes: users are told these."""
    disks = tuple(one.device for one in chosen.devices)
    if all(one.destination_type == "local" for one in disks):
        return disks
    return with_names(disks, root_name(image))


async def _flavor(request: ApiRequest, flavor_id: str) -> Flavor:
    services = request.services
    project = None if request.context.is_admin else request.context.project_id

    async def read() -> Flavor | None:
        return await services.database.read(partial(flavors.get, flavorid=flavor_id, project=project))

    found = await services.lookups.flavors.get((flavor_id, project), read)
    if found is None:
        raise invalid_field("server.flavorRef", flavor_id, "the id of a flavor that the project may use")
    return found


async def _image(request: ApiRequest, image_id: str) -> Image:
    found = await usable_image(request, image_id)
    if found is None:
        raise invalid_field("server.imageRef", image_id, "the id of an image that the project may use")
    return found


def _look_up(
    connection: Connection, wanted: CreateRequest, project: ProjectId | None, default_zone: str
) -> tuple[GroupRule | None, list[str], dict[str, CellUuid], str | None]:
    """Check zone, hosts, cells and group, which is one of `project` (None: of any).

    Return the group's rule, hypervisors that no mapping names, the cells, and the zone.
    """
    where = wanted.destination
    zone = _zone(connection, where, default_zone)
    if where.zone and not where.is_forced and not aggregates.zone_has_host(connection, where.zone, default_zone):
        raise invalid_field("server.availability_zone", where.zone, "an availability zone with hosts")
    for host in where.hosts:
        if host_mappings.of_host(connection, host) is None:
            field = "host" if host == where.requested_host else "availability_zone"
            raise invalid_field(f"server.{field}", host, "the name of a compute host")
    unknown = [node for node in where.nodes if host_mappings.of_host(connection, node) is None]
    hinted = wanted.hints.cells
    named = cells_named(hinted, cells.every(connection), target=wanted.hints.target_cell) if hinted else {}
    if wanted.hints.group is None:
        return None, unknown, named, zone
    group = server_groups.get(connection, wanted.hints.group)
    if group is None or project not in (None, group.project_id):
        raise invalid_hint("group", wanted.hints.group, "the UUID of a server group of this project")
    return group.rule(), unknown, named, zone


def _zone(connection: Connection, where: Destination, default_zone: str) -> str | None:
    """Return the zone that the server shall stay in: that of the request, unless its forced host is in another one.

    A forced hypervisor without its host counts as one of the default zone, as in Nova.
    """
    if not where.is_forced:
        return where.zone
    hosts = () if where.forced_host is None else (where.forced_host,)
    found = next(iter(aggregates.zones_of(aggregates.every(connection), hosts).values()), default_zone)
    return where.zone if where.zone == found else None


async def _check_hypervisors(request: ApiRequest, nodes: list[str], where: Destination) -> None:
    states = await host_states(request.services)
    known = {state.usage.hypervisor_hostname for state in states}
    for node in nodes:
        if node not in known:
            field = "hypervisor_hostname" if node == where.requested_node else "availability_zone"
            raise invalid_field(f"server.{field}", node, "the name of a hypervisor")
    host, wanted = where.requested_host, where.requested_node
    # Of a host that has not reported yet nobody knows what its hypervisor is called.
    called = {one.usage.hypervisor_hostname or host for one in states if one.usage.host == host}
    if wanted is not None and called and wanted not in called:
        raise invalid_field("server.hypervisor_hostname", wanted, f"a hypervisor of the host {host}")


async def _store(
    request: ApiRequest, wanted: CreateRequest, found: Resolved, question: KeyedCreate | None
) -> Given | KeptAnswer:
    """Store the request in one transaction with its quota, its group, and the answer where that is kept.

    Return the answer, or one that was kept under the key meanwhile. Raises OutcomeUnknown with the ids that the servers
    would have.
    """
    services, context = request.services, request.context
    now = services.clock.now()
    secrets = Secrets(admin_password=wanted.password, files=wanted.files)
    spec = server_creation.spec_of(wanted, found, context, services.settings, now)
    new = NewRequest(
        context=context,
        instances=server_creation.instances_of(wanted, found, context, now, config_drive=spec.config_drive),
        spec=spec,
        min_count=wanted.min_count,
        now=now,
        secrets=services.seal(msgspec.json.encode(secrets)),
    )
    defaults = await services.quotas_of(context.project_id)
    unit = partial(_write_unless_kept, wanted=wanted, new=new, question=question, services=services, defaults=defaults)
    try:
        stored = await services.database.write(unit, intake=True)
    except OutcomeUnknown as error:
        unknown = OutcomeUnknown(
            "It is not known whether the servers were stored. They are there, under the ids that `servers` names, or "
            f"they are not: {error}"
        )
        unknown.servers = tuple(instance.uuid for instance in new.instances)
        raise unknown from error
    if spec.group is not None and isinstance(stored, Given):
        await telling.joined(request, spec.group.uuid)
    return stored


def _write_unless_kept(
    connection: Connection,
    *,
    wanted: CreateRequest,
    new: NewRequest,
    question: KeyedCreate | None,
    services: ApiServices,
    defaults: dict[str, int],
) -> Given | KeptAnswer:
    """Write the request and keep its answer under the key, or return what is kept there."""
    kept = None if question is None else kept_answers.find(connection, question, new.now)
    if kept is not None:
        return kept
    given = _given(wanted, new, _write(connection, wanted, new, defaults))
    if question is not None:
        kept_answers.keep(connection, question, services.seal(msgspec.json.encode(given)), new.now)
    return given


def _given(wanted: CreateRequest, new: NewRequest, stored: Sequence[Instance]) -> Given:
    reserved = reservation_id(new.context.request_id) if wanted.server.get("return_reservation_id") else None
    return Given(
        servers=tuple(instance.uuid for instance in stored),
        reservation_id=reserved,
        disk_config=stored[0].disk_config,
        admin_password=wanted.password,
    )


def _write(
    connection: Connection, wanted: CreateRequest, new: NewRequest, defaults: dict[str, int]
) -> tuple[Instance, ...]:
    """Charge the quota, join the group, store; what is raised here undoes all of it."""
    flavor, project = new.spec.flavor, None if new.context.is_admin else new.context.project_id
    if not flavors.is_usable(connection, flavor.flavorid, project):
        # It was there a moment ago: remembered here, deleted or made private by another process.
        raise invalid_field("server.flavorRef", flavor.flavorid, "the id of a flavor that the project may use")
    limits = quotas.limits(connection, new.context.project_id, defaults=defaults)
    check_limits(wanted.metadata, wanted.files, limits)
    members = new.instances[: _charge(connection, new, limits, defaults)]
    group = new.spec.group
    if group is not None:
        if server_groups.get(connection, group.uuid) is None:
            raise invalid_hint("group", group.uuid, "the UUID of a server group of this project")
        uuids = [instance.uuid for instance in members]
        if not server_groups.add_members(connection, group.uuid, uuids, most=limits["server_group_members"]):
            raise QuotaExceeded("Quota exceeded, too many servers in group")
    build_requests.store(connection, msgspec.structs.replace(new, instances=members))
    return members


def _charge(connection: Connection, new: NewRequest, limits: dict[str, int], defaults: dict[str, int]) -> int:
    """Charge as many servers as the quota allows and return how many that is, never fewer than the minimum.

    Raises QuotaExceeded when the minimum does not fit.
    """
    project, user = new.context.project_id, new.context.user_id
    one = charge_of(new.spec.flavor)
    of_user = None
    if quotas.has_user_limits(connection, project, user):
        of_user = quotas.limits(connection, project, user, defaults=defaults)
    count = len(new.instances)
    while True:
        charges = {instance.uuid: one for instance in new.instances[:count]}
        refused = quotas.charge(connection, project, user, charges, limits, user_limits=of_user)
        if refused is None:
            return count
        if count == new.min_count:
            raise QuotaExceeded(refused.message())
        left = min((refused.limits[name] - refused.used[name]) // getattr(one, name) for name in refused.resources)
        count = max(new.min_count, min(count - 1, left))


async def _tell(request: ApiRequest) -> None:
    """Tell the super conductor; it looks by itself too, so that a lost hint only costs a moment."""
    message = ScheduleAndBuildInstances(request_id=request.context.request_id)
    try:
        await request.services.transport.cast(SUPER_CONDUCTOR, message, request.context)
    except (SkepError, OSError) as error:
        log.warning("super conductor not notified", request=request.context.request_id, error=str(error))
