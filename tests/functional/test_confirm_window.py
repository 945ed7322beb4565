"""A move whose owner says nothing for as long as the operator waits (`resize_confirm_window`): it is confirmed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from skep.domain.instances import State
from tests.functional.test_moving_between_cells import (
    big,
    content,
    leaves_nothing_on,
    moved,
    rests,
    used,
    with_disk,
)
from tests.functional.test_shelving import CONTENT, Shelving
from tests.functional.test_unshelving_elsewhere import clean, nothing_left, only_in, two_cells

AN_HOUR = 3600.0


async def done(cloud: Shelving, uuid: str) -> list[str]:
    """Return what was done to a server since it was created, oldest first."""
    path = f"/servers/{uuid}/os-instance-actions"
    listed = (await cloud.session.ask("GET", path)).json()["instanceActions"]
    return [one["action"] for one in reversed(listed)][1:]


@pytest.mark.parametrize(("target", "locked"), [("cell1", True), ("cell2", False)])
async def test_it_is_confirmed_after_the_window(tmp_path: Path, target: str, locked: bool) -> None:
    async with two_cells(tmp_path, hosts=2, resize_confirm_window=0.5) as cloud:
        flavor = await big(cloud)
        uuid = await with_disk(cloud)
        source = cloud.host_of(await cloud.server(uuid))
        await only_in(cloud, target)
        asked: dict[str, Any] = {"flavorRef": flavor}
        await cloud.act(uuid, "resize", asked)
        if locked:
            await cloud.act(uuid, "lock")
        await leaves_nothing_on(cloud, source)
        server = await cloud.calm(uuid, "ACTIVE")
        host = cloud.host_of(server)
        assert host.startswith(target)
        assert host != source
        shown = (await cloud.session.ask("GET", f"/servers/{uuid}", version="2.9")).json()["server"]
        assert shown["locked"] is locked
        assert await content(cloud, uuid) == CONTENT
        assert (await moved(cloud, uuid)) == [("confirmed", source, host)]
        assert [one for one in await done(cloud, uuid) if one != "lock"] == ["resize", "confirmResize"]
        await used(cloud, 1, 2)
        if target == "cell2":
            await rests(cloud, uuid, cell1=State.MOVED, cell2=State.ACTIVE)
        await clean(cloud)
        assert (await cloud.session.ask("DELETE", f"/servers/{uuid}")).status_code == 204
        await cloud.calm(uuid, "")
        await nothing_left(cloud)


@pytest.mark.parametrize("window", [0.0, AN_HOUR])
async def test_before_that_its_owner_decides(tmp_path: Path, window: float) -> None:
    async with two_cells(tmp_path, hosts=2, resize_confirm_window=window) as cloud:
        uuid = await with_disk(cloud)
        source = cloud.host_of(await cloud.server(uuid))
        await cloud.act(uuid, "migrate")
        await cloud.calm(uuid, "VERIFY_RESIZE")
        # As many passes as another server needs to be created and to go.
        other = await cloud.create()
        assert (await cloud.session.ask("DELETE", f"/servers/{other}")).status_code == 204
        await cloud.calm(other, "")
        assert (await cloud.server(uuid))["status"] == "VERIFY_RESIZE"
        await cloud.act(uuid, "revertResize")
        server = await cloud.calm(uuid, "ACTIVE")
        assert cloud.host_of(server) == source
        assert await content(cloud, uuid) == CONTENT
