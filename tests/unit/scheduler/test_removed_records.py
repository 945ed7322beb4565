"""Records that were removed are forgotten in the end, on both sides, and a key that begins anew is understood."""

from __future__ import annotations

from typing import Any

from skep.domain.builds import Placed
from skep.domain.ids import GroupUuid, InstanceUuid
from skep.messages.to_scheduler import ListClaims, ReleaseClaims
from skep.synchronizer.base import FORGET_REMOVED_SECONDS, KEEP_REMOVED_SECONDS, CursorTooOld, Key, Published, Write
from skep.synchronizer.memory import MemoryBackend
from tests.unit.scheduler.test_service import Cloud, key_of

GROUPS = tuple(GroupUuid(f"group-{number}") for number in range(50))


async def test_a_backend_forgets_what_was_removed_long_ago() -> None:
    now = [0.0]
    backend = MemoryBackend(monotonic=lambda: now[0])
    start = (await backend.snapshot()).cursor
    for group in GROUPS:
        await backend.publish((Write(key=Key("groups", group), expected=0, body=b"1"),))
        await backend.publish((Write(key=Key("groups", group), expected=1, body=b""),))
    kept = Key("groups", "kept")
    await backend.publish((Write(key=kept, expected=0, body=b"1"),))
    now[0] = KEEP_REMOVED_SECONDS - 1
    assert await backend.trim() == 0
    latest = (await backend.snapshot()).cursor
    now[0] = KEEP_REMOVED_SECONDS + 1
    assert await backend.trim() == len(GROUPS)
    assert [record.key for record in (await backend.snapshot()).records] == [kept]
    assert await backend.changes(start) == CursorTooOld(), "it may not have read of the removals"
    assert not isinstance(await backend.changes(latest), CursorTooOld)
    assert await backend.publish((Write(key=Key("groups", GROUPS[0]), expected=0, body=b"2"),)) == (Published(1),)


async def test_a_group_that_is_emptied_and_filled_again_is_known_to_every_scheduler(
    usage: Any, spec: Any, group: Any
) -> None:
    cloud = Cloud(usage, spec)
    cloud.backend = MemoryBackend(monotonic=lambda: cloud.now)
    await cloud.ready(hosts=2, schedulers=2)
    wanted = spec(group=group("anti-affinity"))
    for _ in range(3):
        (placed,) = await cloud.select("a", spec=wanted)
        assert isinstance(placed, Placed)
        await cloud.call(ReleaseClaims(claims=(key_of(placed, "a", group=wanted.group.uuid),)))
        await cloud.settle()
    cloud.now = FORGET_REMOVED_SECONDS + 1
    await cloud.beat()
    await cloud.settle()
    removed = Key("groups", wanted.group.uuid)
    assert all(service._states.held(removed).generation == 0 for service in cloud.services)
    cloud.now = KEEP_REMOVED_SECONDS + 1
    await cloud.beat()
    await cloud.backend.trim()  # unless a scheduler has done it already
    assert removed not in cloud.backend.records.remembered()
    await cloud.select("b", spec=wanted)
    await cloud.settle()
    for _ in cloud.services:
        slots = (await cloud.call(ListClaims())).slots
        assert [slot.key.instance for slot in slots] == [InstanceUuid("b")]
    await cloud.stop()
