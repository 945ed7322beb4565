"""What the compute API tells of aggregates, flavors, server groups and servers that are changed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import ComputeSession, http_config, serving_cloud, signed_in
from skep.database.api import flavors, server_groups
from skep.domain.errors import StorageUnavailable
from skep.telemetry.notifier import Notification

VERSION = "2.90"
BOTH = ("start", "end")
Told = tuple[str, dict[str, Any]]


def _sent(data: dict[str, Any]) -> dict[str, Any]:
    """Return data as its readers have it."""
    read: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(data))
    return read


class World:
    """An admin of a cloud of one host, and what is told of what he does."""

    def __init__(self, admin: ComputeSession, heard: list[Notification], project: str) -> None:
        self.admin = admin
        self.project = project
        self._heard = heard

    async def does(self, method: str, path: str, body: object = None) -> tuple[Any, list[Told]]:
        """Do something that must succeed; return its answer, and the event types and data that were told of it."""
        answer = await self.admin.ask(method, path, body, version=VERSION)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None, self.told(answer.headers["x-openstack-request-id"])

    def told(self, request: str) -> list[Told]:
        """Return what was told of a request."""
        return [
            (one.event_type, _sent(one.payload["nova_object.data"]) | {"object": one.payload["nova_object.name"]})
            for one in self._heard
            if one.request == request and not one.event_type.startswith(("instance.create", "scheduler."))
        ]

    async def refused(self, method: str, path: str, body: object = None) -> None:
        """Do something that is refused; nothing may be told of it."""
        answer = await self.admin.ask(method, path, body, version=VERSION)
        assert 400 <= answer.status_code < 500, answer.text
        assert self.told(answer.headers["x-openstack-request-id"]) == []


@asynccontextmanager
async def world(root: Path) -> AsyncIterator[World]:
    heard: list[Notification] = []
    async with serving_cloud(http_config(root), cells=1, hosts=1) as cloud, signed_in(cloud) as admin:
        cloud.process.notifier.add(heard.append)
        answer = await admin.client.get(f"{cloud.identity_url}/auth/projects", headers={"X-Auth-Token": admin.token})
        yield World(admin, heard, answer.json()["projects"][0]["id"])


def names(told: list[Told]) -> list[str]:
    return [name for name, _ in told]


async def test_aggregates(tmp_path: Path) -> None:
    async with world(tmp_path) as admin:
        made, told = await admin.does("POST", "/os-aggregates", {"aggregate": {"name": "one"}})
        path = f"/os-aggregates/{made['aggregate']['id']}"
        assert names(told) == [f"aggregate.create.{when}" for when in BOTH]
        assert told[1][1] == {
            "object": "AggregatePayload",
            "id": made["aggregate"]["id"],
            "uuid": made["aggregate"]["uuid"],
            "name": "one",
            "hosts": [],
            "metadata": {},
        }
        for method, where, body, what in (
            ("PUT", path, {"aggregate": {"name": "two"}}, "update_prop"),
            ("POST", f"{path}/action", {"set_metadata": {"metadata": {"ssd": "true"}}}, "update_metadata"),
            ("POST", f"{path}/action", {"add_host": {"host": "cell1-host1"}}, "add_host"),
        ):
            _, told = await admin.does(method, where, body)
            assert names(told) == [f"aggregate.{what}.{when}" for when in BOTH]
        assert told[1][1] | {"name": "two", "hosts": ["cell1-host1"], "metadata": {"ssd": "true"}} == told[1][1]
        await admin.refused("DELETE", path)
        await admin.refused("POST", f"{path}/action", {"add_host": {"host": "cell1-host1"}})
        _, told = await admin.does("POST", f"{path}/action", {"remove_host": {"host": "cell1-host1"}})
        assert names(told) == [f"aggregate.remove_host.{when}" for when in BOTH]
        assert told[1][1]["hosts"] == []
        _, told = await admin.does("DELETE", path)
        assert names(told) == [f"aggregate.delete.{when}" for when in BOTH]
        assert told[1][1]["name"] == "two"


async def test_flavors(tmp_path: Path) -> None:
    async with world(tmp_path) as admin:
        flavor = {"name": "own", "id": "own", "ram": 64, "disk": 1, "vcpus": 1, "os-flavor-access:is_public": False}
        _, told = await admin.does("POST", "/flavors", {"flavor": flavor})
        assert names(told) == ["flavor.create"]
        assert (told[0][1]["object"], told[0][1]["flavorid"], told[0][1]["projects"]) == ("FlavorPayload", "own", [])
        path = "/flavors/own"
        _, told = await admin.does("PUT", path, {"flavor": {"description": "mine"}})
        assert [(name, data["description"]) for name, data in told] == [("flavor.update", "mine")]
        _, told = await admin.does("POST", f"{path}/os-extra_specs", {"extra_specs": {"hw:cpu_policy": "shared"}})
        assert [(name, data["extra_specs"]) for name, data in told] == [("flavor.update", {"hw:cpu_policy": "shared"})]
        _, told = await admin.does("DELETE", f"{path}/os-extra_specs/hw:cpu_policy")
        assert [(name, data["extra_specs"]) for name, data in told] == [("flavor.update", {})]
        await admin.refused("DELETE", f"{path}/os-extra_specs/hw:cpu_policy")
        project = admin.project
        for action, projects in (("addTenantAccess", [project]), ("removeTenantAccess", [])):
            _, told = await admin.does("POST", f"{path}/action", {action: {"tenant": project}})
            assert [(name, data["projects"]) for name, data in told] == [("flavor.update", projects)]
        _, told = await admin.does("DELETE", path)
        assert names(told) == ["flavor.delete"]
        await admin.refused("DELETE", path)


async def test_server_groups_and_servers(tmp_path: Path) -> None:
    async with world(tmp_path) as admin:
        wanted = {"name": "apart", "policy": "anti-affinity", "rules": {"max_server_per_host": 3}}
        made, told = await admin.does("POST", "/os-server-groups", {"server_group": wanted})
        group = made["server_group"]["id"]
        assert names(told) == ["server_group.create"]
        said = {"uuid": group, "name": "apart", "policy": "anti-affinity", "policies": ["anti-affinity"], "members": []}
        assert told[0][1] | said | {"rules": {"max_server_per_host": "3"}, "object": "ServerGroupPayload"} == told[0][1]
        body = {"name": "one", "flavorRef": "1", "networks": "none", "imageRef": await first_image(admin)}
        made, told = await admin.does("POST", "/servers", {"server": body, "os:scheduler_hints": {"group": group}})
        server = made["server"]["id"]
        joined = [(name, data["members"]) for name, data in told if name.startswith("server_group.")]
        assert joined == [("server_group.add_member", [server])]
        path = f"/servers/{server}"

        async def built() -> bool:
            return bool((await admin.does("GET", path))[0]["server"]["status"] == "ACTIVE")

        await eventually(built, "the server is built")
        for method, where, change, expected in (
            ("PUT", path, {"server": {"name": "two"}}, {"old_display_name": "one", "display_name": "two"}),
            ("POST", f"{path}/metadata", {"metadata": {"a": "b"}}, {"metadata": {"a": "b"}, "old_display_name": None}),
            ("DELETE", f"{path}/metadata/a", None, {"metadata": {}}),
            ("PUT", f"{path}/tags/red", None, {"tags": ["red"]}),
            ("DELETE", f"{path}/tags/red", None, {"tags": []}),
        ):
            _, told = await admin.does(method, where, change)
            assert [name for name, _ in told] == ["instance.update"], where
            assert told[0][1] | expected == told[0][1]
            state = told[0][1]["state_update"]["nova_object.data"]
            assert (state["old_state"], state["state"]) == ("active", "active")
        same: tuple[tuple[str, dict[str, Any]], ...] = (
            (path, {"server": {"name": "two"}}),
            (path, {"server": {"description": "other"}}),
            (f"{path}/tags", {"tags": []}),
        )
        for where, unchanged in same:
            assert (await admin.does("PUT", where, unchanged))[1] == [], where
        await admin.refused("DELETE", f"{path}/tags/red")
        _, told = await admin.does("DELETE", f"/os-server-groups/{group}")
        assert names(told) == ["server_group.delete"]


async def test_what_cannot_be_read_to_be_told_fails_no_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is done by then: who got an error would ask for a second server."""

    def away(*_args: object, **_named: object) -> None:
        raise StorageUnavailable("the database is away")

    async with world(tmp_path) as admin:
        wanted = {"name": "apart", "policy": "soft-anti-affinity"}
        group = (await admin.does("POST", "/os-server-groups", {"server_group": wanted}))[0]["server_group"]["id"]
        body = {"name": "one", "flavorRef": "1", "networks": "none", "imageRef": await first_image(admin)}
        monkeypatch.setattr(server_groups, "members", away)
        _, told = await admin.does("POST", "/servers", {"server": body, "os:scheduler_hints": {"group": group}})
        assert [name for name in names(told) if name.startswith("server_group.")] == []
        flavor = {"name": "own", "id": "own", "ram": 64, "disk": 1, "vcpus": 1, "os-flavor-access:is_public": False}
        monkeypatch.setattr(flavors, "projects", away)
        _, told = await admin.does("POST", "/flavors", {"flavor": flavor})
        assert [(name, data["projects"]) for name, data in told] == [("flavor.create", None)]


async def first_image(admin: World) -> str:
    """Return the id of an image."""
    answer = await admin.admin.ask("GET", "/images", version="2.35")
    assert answer.is_success, answer.text
    return str(answer.json()["images"][0]["id"])
