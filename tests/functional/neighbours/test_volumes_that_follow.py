"""Volumes that follow their server to another host, beside a Cinder that is slow or that others change meanwhile."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from skep.contracts.eventually import eventually
from skep.contracts.neighbours.served import SteppedClock
from skep.database.api.holders import SETTLE
from skep.database.cell import volumes as cell_volumes
from skep.domain.clock import SECOND, Clock
from skep.domain.ids import InstanceUuid
from skep.neighbours.volumes.base import WantedConnection
from skep.super_conductor.parts import Parts
from skep.super_conductor.volumes import VolumesOfServers
from skep_lab.cinder_twin.store import SHARED_TYPE, TwinCaller
from tests.functional.neighbours.test_cinder import BesideCinder, beside_cinder, brought

EACH = 0.6 * SETTLE / SECOND
"""Seconds that Cinder takes for each volume: for two it takes longer than a request without an answer is waited for."""

CINDER = TwinCaller(project_id="admin", is_admin=True, is_service=True)


async def built(demo: BesideCinder, count: int) -> tuple[str, list[str], str]:
    """Return a server, its volumes, and the host that they are connected to."""
    volumes = [demo.volume() for _ in range(count)]
    server = await demo.built(*(brought(one) for one in volumes))
    [[(_, host)], *_] = demo.attached(server).values()
    return server, volumes, host


async def migrate(demo: BesideCinder, server: str) -> None:
    admin = await demo.beside.session("admin", "admin")
    assert (await admin.ask("POST", f"/servers/{server}/action", {"migrate": None})).status_code == 202


def parts_of(demo: BesideCinder) -> Parts:
    """Return what the stories of the super conductor share."""
    above = demo.beside.cloud.plane._super_conductor
    assert above is not None
    return above._parts


async def test_no_look_takes_what_a_slow_cinder_is_still_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the row says so, it names the attachments of before: those that are on their way are no surplus."""
    async with beside_cinder(tmp_path, hosts=2) as demo:
        server, volumes, before = await built(demo, 3)
        above, parts, clock = demo.beside.cloud.plane._super_conductor, parts_of(demo), SteppedClock(Clock().now())
        assert above is not None
        for loop in (above._connections, above._looks_at_volumes):
            await loop.stop()
        story = VolumesOfServers(dataclasses.replace(parts, clock=clock))
        connect = parts.volumes.connect
        seen: set[str] = set()

        async def slow(wanted: Sequence[WantedConnection]) -> Any:
            clock.advance(EACH)
            await story.look()
            seen.update(demo.store.volumes[one].status for one in volumes)
            return await connect(wanted)

        monkeypatch.setattr(parts.volumes, "connect", slow)
        await migrate(demo, server)
        cell = demo.beside.cloud.plane.databases.cells["cell1"]

        async def has_followed() -> bool:
            await story.follow()
            return bool(seen) and not await cell.read(partial(cell_volumes.misplaced, limit=1))

        await eventually(has_followed, "the volumes are at the other host")
        await demo.becomes(server, "VERIFY_RESIZE")
        assert "available" not in seen
        [row] = (await cell.read(partial(cell_volumes.told, uuids=[server]))).values()
        assert row.host != before
        assert demo.attached(server) == {one: [("attached", row.host)] for one in volumes}
        assert {*demo.store.attachments} == row.all_attachments


async def test_a_move_waits_while_another_server_gets_a_volume_of_both(tmp_path: Path) -> None:
    """Cinder makes no attachment meanwhile, and that is over soon: the guest is made once it has its volume there."""
    async with beside_cinder(tmp_path, hosts=2, of_conductors={"scheduled_deadline": 240.0}) as demo:
        volume = demo.volume(volume_type=SHARED_TYPE)
        server, other = await demo.built(brought(volume)), await demo.built()
        [(_, before)] = demo.attached(server)[volume]
        its = demo.store.create_attachment(CINDER, {"volume_uuid": volume, "instance_uuid": other})
        demo.store.connect(CINDER, its.id, {"host": before})
        asked: list[str] = []

        def note(method: str, path: str, moment: str) -> None:
            if (method, path.rpartition("/")[2], moment) == ("POST", "attachments", "after"):
                asked.append(path)

        demo.beside.cinder.passes = note
        await migrate(demo, server)

        async def is_asked_again() -> bool:
            return len(asked) > 1

        await eventually(is_asked_again, "Cinder is asked again")
        assert demo.attached(server)[volume] == [("attached", before)]
        assert (await demo.server(server))["status"] == "RESIZE"
        demo.store.complete(CINDER, its.id)
        await demo.becomes(server, "VERIFY_RESIZE")
        [(status, host)] = demo.attached(server)[volume]
        assert status == "attached"
        assert host not in ("", before)


async def test_an_attachment_that_goes_before_it_is_connected_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What others have deleted meanwhile is no refusal: it is not left to a look of the next hour."""
    async with beside_cinder(tmp_path, hosts=2) as demo:
        server, [volume], before = await built(demo, 1)
        port = parts_of(demo).volumes
        connect = port.connect
        deleted: list[str] = []

        async def too_late(wanted: Sequence[WantedConnection]) -> Any:
            if not deleted:
                deleted.append(wanted[0].attachment_id)
                demo.store.delete_attachment(CINDER, wanted[0].attachment_id)
            return await connect(wanted)

        monkeypatch.setattr(port, "connect", too_late)
        await migrate(demo, server)
        await demo.becomes(server, "VERIFY_RESIZE")

        async def has_followed() -> bool:
            there = demo.attached(server).get(volume, [])
            return [status for status, host in there if host not in ("", before)] == ["attached"] and len(there) == 1

        await eventually(has_followed, "the volume is connected to the other host")
        assert deleted
        cell = demo.beside.cloud.plane.databases.cells["cell1"]

        async def is_told() -> bool:
            row = (await cell.read(partial(cell_volumes.told, uuids=[server])))[InstanceUuid(server)]
            return row.all_attachments == {*demo.store.attachments}

        await eventually(is_told, "the row names the new attachment")
