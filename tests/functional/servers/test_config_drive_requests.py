"""Which servers get a config drive: by the wish of their user, of their image, or of the operator."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.api.routes import ROUTES
from skep.database.cell import builds
from skep.domain.ids import InstanceUuid
from skep.domain.images import Image
from skep_lab.compute_api.servers import CELL1, IMAGE, IMAGES, ServersUnderTest, servers_under_test

NEEDS_ONE = "a0a599e0-31e7-49b7-b260-868f441e862b"


@pytest.fixture
async def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ServersUnderTest]:
    monkeypatch.setitem(IMAGES, NEEDS_ONE, Image(id=NEEDS_ONE, properties={"img_config_drive": "mandatory"}))
    async with servers_under_test(tmp_path, routes=ROUTES) as opened:
        yield opened


async def has_one(cloud: ServersUnderTest, uuid: str) -> bool:
    """Tell whether a server shows a config drive, and has placement and its host know of it."""
    shown = (await cloud.good("GET", f"/servers/{uuid}"))["server"]["config_drive"]
    await cloud.build(uuid)
    work = await cloud.services.cells[CELL1].read(partial(builds.work, uuid=InstanceUuid(uuid)))
    assert work is not None
    assert work.instance.config_drive is work.spec.config_drive is (shown == "True")
    return work.spec.config_drive


@pytest.mark.parametrize(
    ("asked", "image", "wanted"),
    [
        (None, IMAGE, False),
        (False, IMAGE, False),
        ("false", IMAGE, False),
        (True, IMAGE, True),
        ("True", IMAGE, True),
        (None, NEEDS_ONE, True),
        (False, NEEDS_ONE, True),
    ],
)
async def test_who_gets_one(cloud: ServersUnderTest, asked: Any, image: str, wanted: bool) -> None:
    more: dict[str, Any] = {} if asked is None else {"config_drive": asked}
    assert await has_one(cloud, await cloud.create(imageRef=image, **more)) is wanted


async def test_the_operator_may_give_one_to_all(cloud: ServersUnderTest) -> None:
    settings = msgspec.structs.replace(cloud.services.settings, force_config_drive=True)
    forced = ServersUnderTest(dataclasses.replace(cloud.services, settings=settings), cloud.told, ROUTES)
    uuid = await forced.create()
    await forced.client.aclose()
    assert await has_one(cloud, uuid)


async def test_a_rebuild_gives_none(cloud: ServersUnderTest) -> None:
    body = {"rebuild": {"imageRef": NEEDS_ONE}}
    for given, status in ((False, 400), (True, 202)):
        uuid = await cloud.create(config_drive=given)
        await cloud.build(uuid)
        answer = await cloud.ask("POST", f"/servers/{uuid}/action", body)
        assert (answer.status_code, "img_config_drive" in answer.text) == (status, not given), answer.text
