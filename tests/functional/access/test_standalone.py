"""Every route of the embedded services, by every kind of caller, of own, foreign and missing objects."""

from __future__ import annotations

from pathlib import Path

from skep.standalone import openapi
from skep.standalone.identity.app import ROUTES as IDENTITY_ROUTES
from skep.standalone.images.app import ROUTES as IMAGE_ROUTES
from skep.standalone.networks.app import ROUTES as NETWORK_ROUTES
from tests.support.access.matrix import walk
from tests.support.access.network_rows import network_rows
from tests.support.access.standalone_rows import identity_rows, image_rows
from tests.support.access.standalone_world import standalone_world
from tests.support.documented import Documented


async def test_identity(tmp_path: Path) -> None:
    async with standalone_world(tmp_path) as (world, things, callers):
        rows = identity_rows(things)
        assert {row.key for row in rows} == {(method, path, None) for method, path, _ in IDENTITY_ROUTES}
        documented = Documented(openapi.identity())
        wrong = await walk(world, rows, callers, documented)
        assert not wrong, "\n".join(wrong)
        assert {(row.method, row.path) for row in rows if row.served < 400} <= documented.done


async def test_images(tmp_path: Path) -> None:
    async with standalone_world(tmp_path) as (world, things, callers):
        rows = image_rows(things)
        assert {row.key for row in rows} == {(method, path, None) for method, path, _ in IMAGE_ROUTES}
        documented = Documented(openapi.images())
        wrong = await walk(world, rows, callers, documented)
        assert not wrong, "\n".join(wrong)
        assert {(row.method, row.path) for row in rows if row.served < 400} <= documented.done


async def test_networks(tmp_path: Path) -> None:
    async with standalone_world(tmp_path) as (world, things, callers):
        rows = network_rows(things.networks, things.project)
        assert {row.key for row in rows} == {(method, path, None) for method, path, _ in NETWORK_ROUTES}
        documented = Documented(openapi.networks())
        wrong = await walk(world, rows, callers, documented)
        assert not wrong, "\n".join(wrong)
        assert {(row.method, row.path) for row in rows if row.served < 400} <= documented.done
