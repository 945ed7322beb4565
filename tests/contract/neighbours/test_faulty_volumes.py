"""What Skep makes of a Cinder whose answers never come, mean nothing, or are lost after it did what it was asked."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import msgspec
import pytest

from skep.contracts.loopback import plain_client
from skep.contracts.neighbours.served import ServedNeighbours, SteppedClock
from skep.contracts.neighbours.volumes_world import CONNECTOR, Volumes, VolumesWorld, blank, made_of
from skep.domain.block_devices import AskedDevice
from skep.domain.errors import Unavailable
from skep.domain.ids import new_uuid
from skep.neighbours.service_session import ServiceCredentials
from skep.neighbours.volumes.base import (
    AskedAttachment,
    AskedVolumes,
    VolumeLabel,
    VolumesRefused,
    WantedAttachments,
    WantedConnection,
)
from skep_lab.cinder_twin.served import ServedTwin, served_twin
from skep_lab.faulty_service import FaultyService, Mishap, every, faulty_service
from tests.support.cinder import adapter

SECONDS = 2.0

Call: TypeAlias = Callable[[Volumes], Awaitable[Any]]
"""Something that is asked of the adapter."""
Check: TypeAlias = Callable[[], Awaitable[bool]]
"""Tells whether it was done, once."""

OF_ANOTHER = {"error": {"code": 404, "message": "Nothing is found here.", "title": "Not Found"}}
"""A refusal in JSON, of a service or a gateway that is not Cinder."""
OF_A_LIMIT = {
    "overLimitFault": {"code": 413, "message": "This request was rate-limited.", "details": "Only 1 a minute."}
}
"""A refusal of requests that come too often, which refuses nothing for good."""

QUICK = [fault for fault in Mishap if fault not in (Mishap.REFUSES, Mishap.SILENT, Mishap.DRIPS)]
"""Faults that are noticed at once, and meet single requests."""


@pytest.fixture
async def twin(cloud: ServedNeighbours) -> AsyncIterator[ServedTwin]:
    async with served_twin(cloud) as twin:
        twin.store.looks = 0
        yield twin


@pytest.fixture
async def cinder(twin: ServedTwin) -> AsyncIterator[FaultyService]:
    async with faulty_service(twin.place.url.removesuffix("/v3")) as service:
        yield service


@pytest.fixture
async def world(
    twin: ServedTwin, cinder: FaultyService, credentials: ServiceCredentials, clock: SteppedClock
) -> AsyncIterator[VolumesWorld]:
    """Users ask the twin itself; the adapter asks what stands before it."""
    async with (
        adapter(credentials, clock, f"{cinder.url}/v3") as volumes,
        plain_client() as client,
    ):
        yield VolumesWorld(twin.place, client, volumes)


async def making(world: VolumesWorld) -> tuple[Call, Check]:
    server = world.server()
    wanted = world.wanted(server, blank(), made_of("image", world.place.image_id, volume_size=1))

    async def two() -> bool:
        return sorted(one["metadata"]["skep_position"] for one in await world.made_for(server)) == ["0", "1"]

    return lambda volumes: volumes.make([wanted]), two


async def reserving(world: VolumesWorld) -> tuple[Call, Check]:
    server, first, second = world.server(), await world.volume(), await world.volume()

    async def both() -> bool:
        return await world.attached(server) == sorted([(first, "reserved"), (second, "reserved")])

    wanted = WantedAttachments(instance=server, volume_ids=(first, second))
    return lambda volumes: volumes.reserve([wanted]), both


async def keeping(world: VolumesWorld) -> tuple[Call, Check]:
    """What is said of new volumes spares a look at their attachments, never one that is needed."""
    server = world.server()
    wanted = world.wanted(server, blank(), blank())

    async def keep(volumes: Volumes) -> Any:
        [made] = await volumes.make([wanted])
        assert not isinstance(made, VolumesRefused)
        ids = tuple(one.volume_id for one in made)
        are_free = all(one.is_free for one in made)
        [kept] = await volumes.reserve([WantedAttachments(instance=server, volume_ids=ids, are_free=are_free)])
        assert not isinstance(kept, VolumesRefused)
        return [kept]

    async def both() -> bool:
        made = await world.made_for(server)
        return await world.attached(server) == sorted((one["id"], "reserved") for one in made) and len(made) == 2

    return keep, both


async def connecting(world: VolumesWorld) -> tuple[Call, Check]:
    server, volume = world.server(), await world.volume()
    [attachment] = await world.reserved(server, volume)

    async def connected() -> bool:
        return await world.attached(server) == [(volume, "attaching")]

    wanted = WantedConnection(attachment_id=attachment, connector=CONNECTOR)
    return lambda volumes: volumes.connect([wanted]), connected


async def completing(world: VolumesWorld) -> tuple[Call, Check]:
    server, volume = world.server(), await world.volume()
    [attachment] = await world.reserved(server, volume)

    async def attached() -> bool:
        return await world.attached(server) == [(volume, "attached")]

    return lambda volumes: volumes.complete([attachment]), attached


async def detaching(world: VolumesWorld) -> tuple[Call, Check]:
    server, volume = world.server(), await world.volume()
    attachment = await world.in_use(server, volume)

    async def released() -> bool:
        return await world.attached(server) == [] and await world.status(volume) == "available"

    return lambda volumes: volumes.detach([attachment]), released


async def rolling(world: VolumesWorld) -> tuple[Call, Check]:
    volume = await world.volume()
    await world.in_use(world.server(), volume)
    assert await world.volumes.begin_detaching(volume) is None

    async def in_use() -> bool:
        return await world.status(volume) == "in-use"

    return lambda volumes: volumes.roll_detaching(volume), in_use


async def beginning_to_detach(world: VolumesWorld) -> tuple[Call, Check]:
    volume = await world.volume()
    await world.in_use(world.server(), volume)

    async def detaching() -> bool:
        return await world.status(volume) == "detaching"

    return lambda volumes: volumes.begin_detaching(volume), detaching


async def reimaging(world: VolumesWorld) -> tuple[Call, Check]:
    volume = await world.volume()
    await world.reserved(world.server(), volume)

    async def filled() -> bool:
        return (await world.shown(volume)).get("volume_image_metadata") is not None

    return lambda volumes: volumes.reimage(volume, world.place.image_id), filled


async def ending_a_move(world: VolumesWorld) -> tuple[Call, Check]:
    volume = await world.volume()
    await world.in_use(world.server(), volume)
    retype = {"os-retype": {"new_type": world.place.shared_type, "migration_policy": "on-demand"}}
    await world.ask("POST", f"volumes/{volume}/action", retype)
    listed = await world.ask("GET", "volumes/detail", by="demo")
    [other] = [one["id"] for one in listed if one["migration_status"] == f"target:{volume}"]

    async def given_up() -> bool:
        return (await world.status(volume), await world.status(other)) == ("in-use", "gone")

    return lambda volumes: volumes.end_move(volume, other, failed=True), given_up


async def discarding(world: VolumesWorld) -> tuple[Call, Check]:
    server = world.server()
    await world.given(world.wanted(server, blank(), blank()))

    async def gone() -> bool:
        return {one["status"] for one in await world.made_for(server)} <= {"deleting"}

    return lambda volumes: volumes.discard([world.ended(server)]), gone


async def listing(world: VolumesWorld) -> tuple[Call, Check]:
    server, volume = world.server(), await world.volume()
    await world.reserved(server, volume)

    async def reserved() -> bool:
        return await world.attached(server) == [(volume, "reserved")]

    return lambda volumes: volumes.of_servers([server]), reserved


async def choosing(world: VolumesWorld) -> tuple[Call, Check]:
    volume = await world.volume()
    typed = blank(volume_type=world.place.shared_type)
    devices = (made_of("volume", volume), made_of("snapshot", await world.snapshot(volume)), typed)
    asked = AskedVolumes(devices=tuple(AskedDevice(device=one, where="server.imageRef") for one in devices))

    async def untouched() -> bool:
        return await world.status(volume) == "available"

    return lambda volumes: volumes.choose(asked, *world.asking()), untouched


async def looking(world: VolumesWorld) -> tuple[Call, Check]:
    volume = await world.volume()

    async def untouched() -> bool:
        return await world.status(volume) == "available"

    asked = AskedAttachment(volume_id=volume, zone="nova")
    return lambda volumes: volumes.attachable(asked, *world.asking()), untouched


async def asking_for_a_status(world: VolumesWorld) -> tuple[Call, Check]:
    volume = await world.volume()

    async def untouched() -> bool:
        return await world.status(volume) == "available"

    return lambda volumes: volumes.status(volume), untouched


CALLS = (
    making,
    reserving,
    keeping,
    connecting,
    completing,
    detaching,
    beginning_to_detach,
    rolling,
    reimaging,
    asking_for_a_status,
    ending_a_move,
    discarding,
    listing,
    choosing,
    looking,
)

REQUESTS = [
    (making, "GET", r"/volumes/detail"),
    (making, "POST", r"/volumes$"),
    (making, "POST", r"/volumes/.*/metadata$"),
    (reserving, "GET", r"/attachments/detail"),
    (reserving, "POST", r"/attachments$"),
    (keeping, "POST", r"/attachments$"),
    (connecting, "PUT", r"/attachments/"),
    (completing, "POST", r"/attachments/.*/action$"),
    (detaching, "DELETE", r"/attachments/"),
    (beginning_to_detach, "POST", r"/volumes/.*/action$"),
    (rolling, "POST", r"/volumes/.*/action$"),
    (reimaging, "POST", r"/volumes/.*/action$"),
    (asking_for_a_status, "GET", r"/volumes/"),
    (ending_a_move, "POST", r"/volumes/.*/action$"),
    (discarding, "GET", r"/volumes/detail"),
    (discarding, "DELETE", r"/volumes/"),
    (listing, "GET", r"/attachments/detail"),
    (choosing, "GET", r"/volumes/"),
    (choosing, "GET", r"/snapshots/"),
    (choosing, "GET", r"/types"),
    (looking, "GET", r"/volumes/"),
]
"""Each request that a call sends."""


@pytest.mark.parametrize("fault", list(Mishap), ids=lambda fault: fault.name)
async def test_a_service_that_fails_at_everything(
    world: VolumesWorld, cinder: FaultyService, credentials: ServiceCredentials, clock: SteppedClock, fault: Mishap
) -> None:
    hasty = msgspec.structs.replace(credentials, timeout=SECONDS)
    stories = [await begin(world) for begin in CALLS]
    async with adapter(hasty, clock, f"{cinder.url}/v3") as volumes:
        await asyncio.gather(volumes.of_servers([world.server()]), volumes.discard([world.ended(world.server())]))
        await cinder.fail(fault)
        outcomes = await asyncio.gather(*(call(volumes) for call, _ in stories), return_exceptions=True)
    for outcome in outcomes:
        assert isinstance(outcome, Unavailable), outcome
        assert "the volume service" in str(outcome)
    await cinder.heal()
    for call, check in stories:
        await call(world.volumes)
        assert await check()


@pytest.mark.sampled(7)
@pytest.mark.parametrize(("begin", "method", "path"), REQUESTS, ids=lambda said: getattr(said, "__name__", str(said)))
async def test_a_request_that_fails(
    world: VolumesWorld, cinder: FaultyService, begin: Callable[..., Any], method: str, path: str
) -> None:
    """What was done before stays to be found; a repeat does what is missing, and nothing twice."""

    def meets(asked: str, url: str) -> bool:
        return asked == method and re.search(path, url.partition("?")[0]) is not None

    for fault in QUICK:
        call, check = await begin(world)
        await cinder.fail(fault, meets)
        if fault is Mishap.LOST and path in (r"/volumes$", r"/attachments$"):
            [found] = await call(world.volumes)
            assert len(found) == 2, "what was made is found by its label"
        else:
            with pytest.raises(Unavailable, match="the volume service"):
                await call(world.volumes)
        assert cinder.met, fault
        await cinder.heal()
        await call(world.volumes)
        assert await check(), fault


@pytest.mark.sampled(8)
@pytest.mark.parametrize("says", [None, OF_ANOTHER, OF_A_LIMIT], ids=["a page", "of another service", "of a limit"])
@pytest.mark.parametrize("status", [400, 401, 403, 404, 406, 409, 412, 413, 418, 429, 502])
async def test_a_refusal_that_is_not_cinder_s(
    world: VolumesWorld, cinder: FaultyService, status: int, says: dict[str, Any] | None
) -> None:
    """What stands before a service that is away may answer anything; nothing follows from it."""
    for begin in CALLS:
        if begin is reimaging and status == 406:
            # Nothing was done whoever says so: a service that is too old for it is not asked for ever.
            continue
        call, check = await begin(world)
        await cinder.refuse(status, every, says)
        of_user = begin in (choosing, looking)
        with pytest.raises(
            Exception, match="requires authentication" if of_user and status == 401 else "volume service"
        ):
            await call(world.volumes)
        await cinder.heal()
        await call(world.volumes)
        assert await check(), begin


async def test_a_service_that_is_too_old(world: VolumesWorld, cinder: FaultyService) -> None:
    """What it has not yet is refused, with the microversion that it lacks."""
    call, check = await reimaging(world)
    await cinder.refuse(406, every)
    refused = await call(world.volumes)
    assert isinstance(refused, VolumesRefused)
    assert "3.68" in refused.message
    assert not await check()


async def test_a_volume_that_comes_after_its_request_was_given_up(world: VolumesWorld, cinder: FaultyService) -> None:
    """It was made twice then, and one of both goes."""
    server = world.server()
    wanted = world.wanted(server, blank())
    await cinder.fail(Mishap.ERROR, lambda method, _path: method == "POST")
    with pytest.raises(Unavailable):
        await world.volumes.make([wanted])
    await cinder.heal()
    [first] = await world.given(wanted)
    slow = await world.volume(metadata=VolumeLabel(server=server, position=0, ends=True).metadata())
    [found] = await world.given(wanted)
    await world.becomes(({first.volume_id, slow} - {found.volume_id}).pop(), "gone")


async def test_a_service_that_forgot_everything(world: VolumesWorld, twin: ServedTwin) -> None:
    """What servers had is gone: it is told as that, and can be given up."""
    server, other = world.server(), world.server()
    wanted = world.wanted(server, blank())
    [made] = await world.given(wanted)
    attachment = await world.in_use(server, made.volume_id)
    twin.store.forget()
    assert await world.attached(server) == []
    [refused] = await world.volumes.reserve([WantedAttachments(instance=other, volume_ids=(made.volume_id,))])
    assert isinstance(refused, VolumesRefused)
    await world.volumes.detach([attachment])
    assert await world.volumes.discard([world.ended(server)]) == [()]


async def test_an_answer_that_is_about_others(
    twin: ServedTwin, world: VolumesWorld, credentials: ServiceCredentials, clock: SteppedClock
) -> None:
    """It looks right in all, but what it tells of was not asked for."""
    volume, server, answered = await world.volume(), world.server(), new_uuid()
    canned = {
        "/v3/volumes": {"volume": {"id": answered, "status": "available", "size": 1, "metadata": {}}},
        "/v3/attachments": {
            "attachment": {"id": answered, "status": "reserved", "volume_id": answered, "instance": server}
        },
    }
    async with (
        faulty_service(twin.place.url.removesuffix("/v3"), canned.get) as service,
        adapter(credentials, clock, f"{service.url}/v3") as volumes,
    ):
        with pytest.raises(Unavailable, match="the new volume is another one"):
            await volumes.make([world.wanted(server, blank())])
        with pytest.raises(Unavailable, match="the new attachment is that of others"):
            await volumes.reserve([WantedAttachments(instance=server, volume_ids=(volume,))])
    assert await world.made_for(server) == []
    assert await world.attached(server) == []
