"""A filter of another package that raises, in a whole cloud: its request fails or goes on, and others never notice."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from skep.config.scheduler import SchedulerSettings
from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import ComputeSession, http_config, serving_cloud, signed_in
from skep.placement.settings import DEFAULT_FILTERS
from skep.processes.all_in_one import AllInOneCloud

VERSION = "2.96"
MODULE = "fragile_plugins"
CODE = """
from skep.placement.plugins import host_filter

@host_filter(stage="being sound")
def fragile(host, request):
    breaks = request.spec.flavor.extra_specs.get("fragile:breaks")
    if breaks == "raise":
        raise KeyError(host.name)
    if breaks == "exit":
        raise SystemExit(3)
    return True
"""


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install a package with the filter, as an installer leaves it."""
    site = tmp_path / "site"
    info = site / f"{MODULE}-1.0.dist-info"
    info.mkdir(parents=True)
    info.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: {MODULE}\nVersion: 1.0\n")
    info.joinpath("entry_points.txt").write_text(f"[skep.filters]\nFragileFilter = {MODULE}:fragile\n")
    site.joinpath(f"{MODULE}.py").write_text(CODE)
    monkeypatch.syspath_prepend(site)
    yield
    sys.modules.pop(MODULE, None)


class Users:
    """A signed-in administrator who creates small servers."""

    def __init__(self, cloud: AllInOneCloud, session: ComputeSession, image: str) -> None:
        self.cloud = cloud
        self.session = session
        self.image = image

    async def settled(self, breaks: str) -> dict[str, Any]:
        """Create a server with a flavor of this kind; return it when it is ACTIVE or ERROR."""
        facts = {"name": breaks, "id": breaks, "ram": 64, "vcpus": 1, "disk": 0}
        if (await self.session.ask("GET", f"/flavors/{breaks}")).status_code == 404:
            assert (await self.session.ask("POST", "/flavors", {"flavor": facts})).status_code == 200
            body = {"extra_specs": {"fragile:breaks": breaks}}
            assert (await self.session.ask("POST", f"/flavors/{breaks}/os-extra_specs", body)).status_code == 200
        server = {"name": "one", "flavorRef": breaks, "imageRef": self.image, "networks": "none"}
        made = await self.session.ask("POST", "/servers", {"server": server}, version=VERSION)
        assert made.status_code == 202, made.text
        path = f"/servers/{made.json()['server']['id']}"

        async def read() -> Any:
            shown = (await self.session.ask("GET", path, version=VERSION)).json()["server"]
            return shown if shown["status"] in ("ACTIVE", "ERROR") else None

        found: dict[str, Any] = await eventually(read, "the server is settled")
        return found

    def failures(self) -> float:
        """Return how often the metrics say that the filter failed."""
        name = "skep_placement_plugin_failures_total"
        return self.cloud.plane.metrics.registry.get_sample_value(name, {"plugin": "FragileFilter"}) or 0.0


@asynccontextmanager
async def users_of(root: Path, on_error: Literal["fail", "skip"]) -> AsyncIterator[Users]:
    chosen = SchedulerSettings(enabled_filters=(*DEFAULT_FILTERS, "FragileFilter"), on_plugin_error=on_error)
    config = msgspec.structs.replace(http_config(root), scheduler=chosen)
    async with serving_cloud(config, cells=1, hosts=2) as cloud, signed_in(cloud) as session:
        found = await session.client.get(f"{cloud.images_url}/v2/images", headers={"X-Auth-Token": session.token})
        yield Users(cloud, session, found.json()["images"][0]["id"])


async def test_the_server_says_who_failed_and_others_are_served(tmp_path: Path) -> None:
    async with users_of(tmp_path, "fail") as users:
        for breaks, error in (("raise", "KeyError"), ("exit", "SystemExit")):
            before = users.failures()
            server = await users.settled(breaks)
            assert server["status"] == "ERROR"
            wanted = f"No valid host: the filter FragileFilter, a plug-in, failed ({error})"
            assert server["fault"]["message"].startswith(wanted)
            assert users.failures() > before
            assert (await users.settled("never"))["status"] == "ACTIVE"


async def test_as_configured_it_is_skipped_and_counted(tmp_path: Path) -> None:
    async with users_of(tmp_path, "skip") as users:
        assert (await users.settled("never"))["status"] == "ACTIVE"
        assert users.failures() == 0
        for breaks in ("raise", "exit"):
            before = users.failures()
            assert (await users.settled(breaks))["status"] == "ACTIVE"
            assert users.failures() > before
