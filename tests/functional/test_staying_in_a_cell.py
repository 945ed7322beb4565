"""What keeps a server in its cell is said to who asked that it moves: the rule, and where the host is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from skep.domain.instances import State
from tests.functional.test_shelving import Shelving
from tests.functional.test_unshelving_elsewhere import only_in, states, two_cells

RULE = "compute:servers:resize:cross_cell"
NOBODY = f'"{RULE}": "!"\n'
ELSEWHERE = "No valid host: the requested host is in another cell"
TO_OTHER = {"host": "cell2-host1"}


async def fault(cloud: Shelving, uuid: Any) -> str:
    return str((await cloud.row(uuid)).fault.message)


async def stays(cloud: Shelving, uuid: Any, status: str) -> str:
    """Wait until a server is in its cell as it was; return why."""
    await cloud.calm(uuid, status)
    state = State.ACTIVE if status == "ACTIVE" else State.SHELVED_OFFLOADED
    assert await states(cloud, uuid) == {"cell1": state}
    return await fault(cloud, uuid)


async def refusal(cloud: Shelving, uuid: str, action: dict[str, Any]) -> tuple[int, str]:
    answer = await cloud.session.ask("POST", f"/servers/{uuid}/action", action, version="2.91")
    return answer.status_code, answer.json()["badRequest"]["message"]


async def flavor(cloud: Shelving) -> dict[str, str]:
    made = {"name": "big", "id": "big", "ram": 2048, "vcpus": 2, "disk": 3}
    assert (await cloud.session.ask("POST", "/flavors", {"flavor": made})).status_code == 200
    return {"flavorRef": "big"}


@pytest.mark.parametrize(
    ("settings", "rule"),
    [({"policy": NOBODY}, RULE), ({"max_cells": 1}, "`[scheduler] max_cells` is 1")],
    ids=["policy", "max_cells"],
)
async def test_a_server_without_leave_to_go_stays_in_its_cell(
    tmp_path: Path, settings: dict[str, Any], rule: str
) -> None:
    async with two_cells(tmp_path, **settings) as cloud:
        uuid = await cloud.create()
        bigger = await flavor(cloud)
        await only_in(cloud, "cell2")
        for key, asked in (("migrate", None), ("resize", bigger)):
            await cloud.act(uuid, key, asked)
            said = await stays(cloud, uuid, "ACTIVE")
            assert "Other cells were not asked: " in said
            assert rule in said
        await cloud.act(uuid, "shelve")
        await cloud.calm(uuid, "SHELVED_OFFLOADED")
        await cloud.act(uuid, "unshelve")
        said = await stays(cloud, uuid, "SHELVED_OFFLOADED")
        assert "Other cells were not asked: " in said
        assert rule in said


async def test_a_host_of_another_cell_is_refused_at_once_without_leave(tmp_path: Path) -> None:
    async with two_cells(tmp_path, policy=NOBODY) as cloud:
        uuid = await cloud.create()
        await only_in(cloud, "cell1", "cell2")
        expected = 400, f"Compute host cell2-host1 is in another cell: the policy `{RULE}` does not allow it."
        assert await refusal(cloud, uuid, {"migrate": TO_OTHER}) == expected
        await cloud.act(uuid, "shelve")
        await cloud.calm(uuid, "SHELVED_OFFLOADED")
        assert await refusal(cloud, uuid, {"unshelve": TO_OTHER}) == expected
        await cloud.calm(uuid, "SHELVED_OFFLOADED")


async def test_a_live_migration_to_another_cell_is_refused_at_once(tmp_path: Path) -> None:
    async with two_cells(tmp_path) as cloud:
        uuid = await cloud.create()
        await only_in(cloud, "cell1", "cell2")
        asked = {"os-migrateLive": {**TO_OTHER, "block_migration": "auto"}}
        assert await refusal(cloud, uuid, asked) == (
            400,
            "Compute host cell2-host1 is in another cell: a live migration stays in its cell.",
        )
        await cloud.act(uuid, "suspend")
        await cloud.calm(uuid, "SUSPENDED")
        answer = await cloud.session.ask("POST", f"/servers/{uuid}/action", asked, version="2.91")
        assert answer.status_code == 409, "its state refuses it, whichever host is named"


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"max_cells": 1}, "`[scheduler] max_cells` is 1"),
        ({"moves_between_cells": False}, "`[conductor] moves_between_cells` is false"),
    ],
    ids=["max_cells", "switched off"],
)
async def test_a_requested_host_of_another_cell_is_named_as_that(
    tmp_path: Path, settings: dict[str, Any], rule: str
) -> None:
    """And nothing is said of what would fit, which is about the cell that it may not leave."""
    async with two_cells(tmp_path, **settings) as cloud:
        uuid = await cloud.create()
        await only_in(cloud, "cell1", "cell2")
        await cloud.act(uuid, "migrate", TO_OTHER)
        assert await stays(cloud, uuid, "ACTIVE") == f"{ELSEWHERE}. Other cells were not asked: {rule}"


async def test_a_requested_host_without_room_is_judged_by_its_own_cell(tmp_path: Path) -> None:
    """It was said that it could never hold the server, and that it could."""
    async with two_cells(tmp_path, not_ready_deadline=0.5) as cloud:
        uuid = await cloud.create()
        await cloud.act(uuid, "migrate", TO_OTHER)
        said = await stays(cloud, uuid, "ACTIVE")
        assert said.startswith(f"{ELSEWHERE}. In other cells: No valid host: ")
        assert "no host could ever hold it" not in said
        await cloud.act(uuid, "shelve")
        await cloud.calm(uuid, "SHELVED_OFFLOADED")
        await cloud.act(uuid, "unshelve", TO_OTHER)
        said = await stays(cloud, uuid, "SHELVED_OFFLOADED")
        assert said.startswith(f"{ELSEWHERE}. In other cells: No valid host: ")
        assert "no host could ever hold it" not in said
