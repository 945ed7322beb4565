"""The events of moves name the host whose step they tell of, and say to administrators why one failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from skep.config.compute import FakeFailure
from skep.contracts.eventually import eventually
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


async def are_undone(lines: Sequence[Mapping[str, Any]], times: int) -> None:
    """Wait until the log tells of so many attempts that were undone."""

    async def is_so() -> bool:
        return [line["event"] for line in lines].count("undone") == times

    await eventually(is_so, f"{times} attempts are undone")


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


async def test_what_is_undone_after_a_move_is_not_told_as_failed(tmp_path: Path) -> None:
    with capture_logs() as lines:
        async with opened(tmp_path) as cloud:
            uuid = await cloud.create()

            # A confirm undoes what was kept, a revert that and what the server had there.
            for key, times in (("confirmResize", 1), ("revertResize", 3)):
                await cloud.act(uuid, "migrate")
                await cloud.calm(uuid, "VERIFY_RESIZE")
                assert await cloud.ask(uuid, key) in (202, 204)
                await cloud.calm(uuid, "ACTIVE")
                await are_undone(lines, times)
    assert not [line for line in lines if line["event"] == "failed"]
