"""The events of moves name the host whose step they tell of, and say to administrators why one failed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from skep.config.compute import FakeFailure
from tests.functional.test_shelving import Shelving, opened
from tests.functional.test_unshelving_elsewhere import only_in, two_cells

FAILS = FakeFailure(operation="put_aside", server="put-aside", error="NoSpaceLeft", message="the disk is full")


async def latest(cloud: Shelving, uuid: str, version: str = "2.84") -> list[dict[str, Any]]:
    """Return the events of the latest action of a server, oldest first."""
    path = f"/servers/{uuid}/os-instance-actions"
    [newest, *_] = (await cloud.session.ask("GET", path, version=version)).json()["instanceActions"]
    shown = (await cloud.session.ask("GET", f"{path}/{newest['request_id']}", version=version)).json()
    return list(reversed(shown["instanceAction"]["events"]))


async def hosts(cloud: Shelving, uuid: str) -> dict[str, str | None]:
    return {event["event"]: event["host"] for event in await latest(cloud, uuid)}


@pytest.mark.parametrize("cells", [1, 2])
async def test_an_event_names_the_host_whose_step_it_tells_of(tmp_path: Path, cells: int) -> None:
    async with two_cells(tmp_path) if cells == 2 else opened(tmp_path) as cloud:
        uuid = await cloud.create()
        source = cloud.host_of(await cloud.server(uuid))
        if cells == 2:
            await only_in(cloud, "cell2")
        await cloud.act(uuid, "migrate")
        target = cloud.host_of(await cloud.calm(uuid, "VERIFY_RESIZE"))
        assert target != source
        told = await hosts(cloud, uuid)
        assert told["compute_prep_resize"] == target
        assert told["compute_resize_instance"] == source
        assert told["compute_finish_resize"] == target
        await cloud.act(uuid, "revertResize")
        await cloud.calm(uuid, "ACTIVE")
        told = await hosts(cloud, uuid)
        assert told["compute_revert_resize"] == target
        assert told["compute_finish_revert_resize"] == source
        await cloud.act(uuid, "migrate")
        target = cloud.host_of(await cloud.calm(uuid, "VERIFY_RESIZE"))
        assert await cloud.ask(uuid, "confirmResize") == 204
        await cloud.calm(uuid, "ACTIVE")
        assert await hosts(cloud, uuid) == {"compute_confirm_resize": source}


async def test_a_source_that_fails_is_named_with_its_reason(tmp_path: Path) -> None:
    """Also before 2.84, when only the traceback shows it."""
    async with opened(tmp_path, FAILS) as cloud:
        uuid = await cloud.create("put-aside")
        source = cloud.host_of(await cloud.server(uuid))
        await cloud.act(uuid, "migrate")
        await cloud.calm(uuid, "ACTIVE")
        failed = [event for event in await latest(cloud, uuid) if event["event"] == "compute_resize_instance"]
        [event] = failed
        assert (event["host"], event["result"]) == (source, "Error")
        assert "the disk is full" in event["traceback"]
        assert event["traceback"] == event["details"]
        for event in await latest(cloud, uuid, "2.1"):
            assert event["result"] == ("Success" if event["event"] == "compute_prep_resize" else "Error")
            assert (event["traceback"] is None) == (event["result"] == "Success")
