"""A Glance that is away, slow, or answers nonsense: who waits is told so, and servers and images stay as they were."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path

import httpx
import pytest

from skep.api import awaited_images as awaiting
from skep_lab.faulty_service import Mishap
from tests.functional.neighbours.test_faulty_keystone import unavailable
from tests.support.cloud_beside import cloud_beside


@pytest.mark.parametrize("fault", list(Mishap), ids=lambda fault: fault.name)
async def test_who_waits_for_glance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Mishap) -> None:
    monkeypatch.setattr(awaiting, "FORGET_SECONDS", 1)
    monkeypatch.setattr(awaiting, "LATE_SECONDS", 1.0)
    async with cloud_beside(tmp_path) as beside:
        image_id, other = await beside.image(), await beside.image("other")
        session = await beside.session()
        uuids = [await beside.request(session, image_id, name) for name in ("a", "b", "c", "d", "e", "f")]
        for uuid in uuids:
            await beside.calm(session, uuid, "ACTIVE")
        snapshot, backup, shelve, rebuild, rescue, _ = (f"/servers/{uuid}/action" for uuid in uuids)
        server = {"server": {"name": "one", "imageRef": other, "flavorRef": "1", "networks": "none"}}

        async def ask_all() -> list[httpx.Response]:
            asked: list[Awaitable[httpx.Response]] = [
                session.ask("GET", "/images"),
                session.ask("GET", "/images/detail"),
                session.ask("GET", f"/images/{other}"),
                session.ask("GET", f"/images/{other}/metadata"),
                session.ask("POST", f"/images/{other}/metadata", {"metadata": {"colour": "blue"}}),
                session.ask("POST", "/servers", server, version="2.37"),
                session.ask("POST", snapshot, {"createImage": {"name": "of-it"}}),
                session.ask("POST", backup, {"createBackup": {"name": "b", "backup_type": "daily", "rotation": 1}}),
                session.ask("POST", shelve, {"shelve": None}),
                session.ask("POST", rebuild, {"rebuild": {"imageRef": other}}),
                session.ask("POST", rescue, {"rescue": {"rescue_image_ref": other}}),
            ]
            return list(await asyncio.gather(*asked))

        await beside.glance.fail(fault)
        for answer in await ask_all():
            unavailable(answer, "the image service")
        unavailable(await session.ask("DELETE", f"/images/{other}"), "the image service")
        for uuid in uuids:
            shown = await beside.server(session, uuid)
            assert (shown["status"], shown["OS-EXT-STS:task_state"]) == ("ACTIVE", None)
        assert len((await session.ask("GET", "/servers")).json()["servers"]) == len(uuids)
        await beside.glance.heal()
        await beside.nothing_awaited()
        # Where only its answer was lost, the image is deleted as it was asked.
        left = ["tiny"] if fault is Mishap.LOST else ["other", "tiny"]
        assert await beside.images() == left
