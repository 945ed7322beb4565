"""The steps of evacuations on one host: a lost guest is made anew from the image of its server.

They are steps of moves (`moves.py`). The lost host's agent, should it live, lets go of its guest first; the target
makes disks as for a build, and the guest once the cell has given it the server.
"""

from __future__ import annotations

from functools import partial

import msgspec
import structlog

from skep.compute import config_drives, connections
from skep.compute.drivers.base import NamedResource, PowerDriver
from skep.compute.drivers.contents import GuestContents
from skep.compute.entries import BuildAccepted, GuestBuilt, SpawnGranted
from skep.compute.host import Host
from skep.compute.image_transfers import Taker
from skep.compute.images import misfit
from skep.compute.move_orders import NO_MOVES, Result, built_of, opened_of
from skep.compute.resources import imageless, making
from skep.compute.running import weighed_properties
from skep.domain.builds import BuildFailure, failure
from skep.domain.capabilities import Capability
from skep.domain.decoding import json_decoder
from skep.domain.ids import InstanceUuid
from skep.domain.instances import PowerState
from skep.messages.to_compute import MoveStep

log = structlog.get_logger("skep.compute")

SECRETS_SECONDS = 60.0
"""For how long a host without a key asks for the password, before it makes the guest without."""


def beside_another(host: Host, order: MoveStep) -> BuildFailure | None:
    """Return why no attempt of a server may begin here: another one of it has not been undone yet."""
    others = [number for number in host.ledger.attempts(order.instance.uuid) if number != order.attempt]
    if not others:
        return None
    return _still_there(order.instance.uuid, others[0])


def _still_there(instance: InstanceUuid, attempt: int) -> BuildFailure:
    return failure("ComputeResourcesUnavailable", f"The host still has attempt {attempt} of {instance}.")


async def unknown_guest(host: Host, order: MoveStep) -> GuestBuilt | Result:
    """Return the guest to be released of which the journal knows nothing, as the entry that it lacks.

    The journal may be lost, or older than the guest. So the hypervisor is asked: a guest that it has would run beside
    the new one. NOSTATE: it has none. A failure says why nothing can be said of it, or done to it.
    """
    found = await host.calls.read("guests", host.driver.guests)
    if isinstance(found, BuildFailure):
        return found
    mine = (order.instance.uuid, order.attempt)
    guest = next((one for one in found if (one.instance, one.attempt) == mine), None)
    if guest is None:
        return PowerState.NOSTATE
    if Capability.MOVE not in host.capabilities:
        return NO_MOVES
    record = host.journal.attempts.get(order.instance.uuid)
    if record is not None and order.attempt in record.over:
        return _still_there(order.instance.uuid, order.attempt)
    return GuestBuilt(
        instance=guest.instance,
        attempt=guest.attempt,
        resources=guest.resources,
        allocation=guest.allocation,
        launched_at=host.clock.now(),
        power_state=guest.power_state,
        image_properties=weighed_properties(order.instance.image),
        expected_end=order.expected_end,
        described=order.instance,
    )


async def make_disks(host: Host, order: MoveStep) -> Result:
    """Make all that the guest of an attempt needs, unless the guest may be there already."""
    opened = opened_of(host, order)
    if opened is None or opened.order is None or opened.granted or opened.received:
        return PowerState.NOSTATE
    return await _made(host, order, opened.order) or PowerState.NOSTATE


async def spawn(host: Host, order: MoveStep) -> Result | None:
    """Make the guest of an attempt, running or stopped; None where the attempt is not here any more."""
    opened = opened_of(host, order)
    if opened is None:
        return None
    if opened.built is None and opened.order is not None:
        failed = await _spawned(host, order, opened.order, again=opened.granted or not opened.received)
        if failed is not None:
            return failed
    built = opened.built if opened.built is not None else built_of(host, order)
    if built is None:
        return None
    if order.start or built.power_state is not PowerState.RUNNING:
        return built.power_state
    if not isinstance(host.driver, PowerDriver):
        return failure("SpawnFailed", f"the guest runs, and host {host.name} cannot stop it")
    return await host.calls.change("action", host.driver.power_off(order.instance.uuid), order.instance.uuid)


async def _spawned(host: Host, order: MoveStep, entry: BuildAccepted, *, again: bool) -> BuildFailure | None:
    """Make the guest; what an earlier try left is removed first, and its disks are made anew."""
    instance, attempt = order.instance, order.attempt
    if again:
        failed = await host.remove(instance.uuid, attempt) or await _made(host, order, entry)
        if failed is not None:
            return failed
    host.journal.note(SpawnGranted(instance=instance.uuid, attempt=attempt))
    contents = await _contents(host, order)
    unwritten = await config_drives.write(host, instance, attempt, contents)
    if unwritten is None:
        unwritten = await connections.connect(host, instance, attempt, order.context)
    if unwritten is not None:
        return unwritten
    spawning = host.driver.spawn(instance, attempt, entry.resources, entry.allocation, contents)
    power_state = await host.calls.change("spawn", spawning, instance.uuid)
    if isinstance(power_state, BuildFailure):
        return power_state
    host.journal.record(
        GuestBuilt(
            instance=instance.uuid,
            attempt=attempt,
            resources=entry.resources,
            allocation=entry.allocation,
            launched_at=host.clock.now(),
            power_state=power_state,
            image_properties=weighed_properties(instance.image),
            expected_end=entry.expected_end,
            described=instance,
            prepares=entry.prepares,
        )
    )
    await host.journal.synced()
    host.guests[instance.uuid] = attempt
    host.reports.changed()
    return None


async def _made(host: Host, order: MoveStep, entry: BuildAccepted) -> BuildFailure | None:
    """Make all disks, and write down that they are whole: an order that is late does not make them anew."""
    failed = misfit(order.instance)
    for resource in entry.prepares:
        if failed is None:
            failed = await _made_one(host, order, resource)
    if failed is None:
        host.journal.record(msgspec.structs.replace(entry, received=True))
        await host.journal.synced()
    return failed


async def _made_one(host: Host, order: MoveStep, resource: NamedResource) -> BuildFailure | None:
    instance, images, image = order.instance, host.images, order.instance.image
    if not resource.from_image:
        return await host.calls.change("prepare", making(host, instance, order.attempt, resource, None), instance.uuid)
    if (unable := imageless(host, instance)) is not None:
        return unable
    assert images is not None
    assert image is not None
    asking = partial(host.upcalls.ticket, instance.uuid, order.attempt, image.id, order.context)
    path = await images.take(image, Taker(order.context, asking))
    if isinstance(path, BuildFailure):
        return path
    try:
        return await host.calls.change("prepare", making(host, instance, order.attempt, resource, path), instance.uuid)
    finally:
        images.release(image)


async def _contents(host: Host, order: MoveStep) -> GuestContents | None:
    """Return the password of the guest, by the host's own key or from above the cell."""
    if order.secrets is None:
        return None
    contents = host.open_contents(order.secrets)
    if contents is None:
        until = host.clock.elapsed() + SECRETS_SECONDS
        asking = partial(host.upcalls.contents, wanted=lambda: host.clock.elapsed() < until)
        plain = await asking(order.instance.uuid, order.attempt, order.context, task_id=order.context.request_id)
        contents = None if plain is None else json_decoder(GuestContents).decode(plain)
    if contents is None:
        log.warning("password not given to a guest: no key opens it", host=host.name, instance=order.instance.uuid)
    return contents
