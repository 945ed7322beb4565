"""An operator deletes or disables what a build needs while it is on its way: its host, its cell, whatever it names."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import sqlalchemy as sa

from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import ComputeSession, http_config, serving_cloud, signed_in
from skep.database.api import cells, flavors, host_mappings
from skep.database.cell import agents
from skep.processes.all_in_one import AllInOneCloud
from skep.telemetry.steps import CrashPoint

POINTS = [("stage", "before"), ("stage", "after"), ("map", "before"), ("map", "after"), ("settle", "after")]
MAPPED = [("map", "after"), ("settle", "after")]
"""From here on the server is there, and the operator is told so."""


@asynccontextmanager
async def started(root: Path, *, cells: int, hosts: int) -> AsyncIterator[tuple[AllInOneCloud, ComputeSession]]:
    config = http_config(root)
    async with serving_cloud(config, cells=cells, hosts=hosts) as cloud, signed_in(cloud) as session:
        yield cloud, session


async def admin(session: ComputeSession, method: str, path: str, body: object = None) -> httpx.Response:
    base = str(session.client.base_url).removesuffix("/").removesuffix("/v2.1")
    headers = {"X-Auth-Token": session.token}
    return await session.client.request(method, f"{base}/admin/v1{path}", json=body, headers=headers)


async def asked(
    cloud: AllInOneCloud,
    session: ComputeSession,
    wish: dict[str, Any] | None = None,
    hints: dict[str, Any] | None = None,
    key: str | None = None,
) -> httpx.Response:
    images = await session.client.get(f"{cloud.images_url}/v2/images", headers={"X-Auth-Token": session.token})
    tiny = images.json()["images"][-1]["id"]
    body = {"name": "one", "imageRef": tiny, "flavorRef": "1", "networks": "none", **(wish or {})}
    headers = {} if key is None else {"Idempotency-Key": key}
    whole = {"server": body, "os:scheduler_hints": hints or {}}
    return await session.ask("POST", "/servers", whole, version="2.37", **headers)


async def create(
    cloud: AllInOneCloud,
    session: ComputeSession,
    wish: dict[str, Any] | None = None,
    hints: dict[str, Any] | None = None,
) -> str:
    answer = await asked(cloud, session, wish, hints)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["server"]["id"])


async def settled(session: ComputeSession, uuid: str) -> dict[str, Any]:
    """Wait until a server is ACTIVE or in ERROR and return it."""

    async def probe() -> dict[str, Any]:
        server: dict[str, Any] = (await session.ask("GET", f"/servers/{uuid}")).json()["server"]
        return server if server["status"] in ("ACTIVE", "ERROR") else {}

    return await eventually(probe, "the server is ACTIVE or in ERROR")


async def active(session: ComputeSession, uuid: str) -> dict[str, Any]:
    """Wait until a server is ACTIVE and return it."""

    async def probe() -> dict[str, Any]:
        server: dict[str, Any] = (await session.ask("GET", f"/servers/{uuid}")).json()["server"]
        return server if server["status"] == "ACTIVE" else {}

    return await eventually(probe, "the server is ACTIVE")


async def nothing_stays(session: ComputeSession, uuid: str) -> None:
    """Delete a server; neither it nor a charge of it is left, and all databases agree."""
    await session.ask("DELETE", f"/servers/{uuid}")

    async def is_gone() -> bool:
        limits = (await session.ask("GET", "/limits")).json()["limits"]["absolute"]
        shown = await session.ask("GET", f"/servers/{uuid}")
        return shown.status_code == 404 and limits["totalInstancesUsed"] == 0

    await eventually(is_gone, "the server and its charge are gone")

    async def agrees() -> bool:
        audit: dict[str, Any] = (await admin(session, "GET", "/audit")).json()["audit"]
        return not audit["differences"] and not audit["unread"]

    await eventually(agrees, "all databases agree")


async def during(
    cloud: AllInOneCloud,
    session: ComputeSession,
    point: tuple[str, str],
    act: Callable[[CrashPoint], Awaitable[httpx.Response]],
) -> tuple[httpx.Response, CrashPoint, str]:
    """Build a server, and act once when the build stands at a point; return the answer, where it was, the server."""
    acted: list[tuple[httpx.Response, CrashPoint]] = []

    async def there(at: CrashPoint) -> None:
        if not acted and (at.step, at.when) == point and at.host:
            acted.append((await act(at), at))

    cloud.plane.steps.crash_hook = there
    uuid = await create(cloud, session)
    await eventually(lambda: _is(bool(acted)), f"the build stood {point[1]} {point[0]}")
    cloud.plane.steps.crash_hook = None
    return acted[0][0], acted[0][1], uuid


async def _is(said: bool) -> bool:
    return said


async def services(session: ComputeSession) -> dict[str, dict[str, Any]]:
    answer = await session.ask("GET", "/os-services?binary=nova-compute", version="2.53")
    return {one["host"]: one for one in answer.json()["services"]}


async def test_a_host_that_is_deleted_under_a_build_gets_no_server(tmp_path: Path) -> None:
    async with started(tmp_path, cells=1, hosts=6) as (cloud, session):
        for point in POINTS:
            known = await services(session)

            async def delete(at: CrashPoint, known: dict[str, dict[str, Any]] = known) -> httpx.Response:
                # A machine that is given up is switched off first; its agent would register anew otherwise.
                await cloud.plane.agents.pop(at.host).stop()
                cloud.plane.drivers.pop(at.host).close()
                return await session.ask("DELETE", f"/os-services/{known[at.host]['id']}", version="2.53")

            answer, at, uuid = await during(cloud, session, point, delete)
            if point in MAPPED:
                assert (answer.status_code, "hosting instances" in answer.text) == (409, True), point
                assert (await services(session))[at.host]["status"] == "enabled"
                [cell] = [cell for cell in cloud.plane.cells.values() if cell.name == at.cell]
                await cloud.plane.start_agent(cell, at.host)
                assert (await active(session, uuid))["OS-EXT-SRV-ATTR:host"] == at.host
            else:
                assert answer.status_code == 204, (point, answer.text)
                assert (await active(session, uuid))["OS-EXT-SRV-ATTR:host"] != at.host, point
                await eventually(partial(_is_not_listed, session, at.host), "the host is gone")
            await nothing_stays(session, uuid)


async def _is_not_listed(session: ComputeSession, host: str) -> bool:
    return host not in await services(session)


async def test_a_cell_that_is_deleted_under_a_build_gets_no_server(tmp_path: Path) -> None:
    async with started(tmp_path, cells=4, hosts=1) as (cloud, session):
        for point in POINTS:

            async def delete(at: CrashPoint) -> httpx.Response:
                await admin(session, "PATCH", f"/cells/{at.cell}", {"disabled": True})
                return await admin(session, "DELETE", f"/cells/{at.cell}?hosts=true")

            answer, at, uuid = await during(cloud, session, point, delete)
            server = await active(session, uuid)
            if point in MAPPED:
                assert (answer.status_code, "holds 1 servers" in answer.text) == (409, True), (point, answer.text)
                assert server["OS-EXT-SRV-ATTR:host"] == at.host
                await admin(session, "PATCH", f"/cells/{at.cell}", {"disabled": False})
            else:
                assert answer.status_code == 200, (point, answer.text)
                assert server["OS-EXT-SRV-ATTR:host"] != at.host, point
                await eventually(partial(_is_no_cell, session, at.cell), "the cell is gone")
            await nothing_stays(session, uuid)


async def _is_no_cell(session: ComputeSession, name: str) -> bool:
    return (await admin(session, "GET", f"/cells/{name}")).status_code == 404


@pytest.mark.parametrize("point", [("stage", "before"), ("map", "before")])
async def test_a_host_or_a_cell_that_is_disabled_under_a_build_gets_no_server(
    tmp_path: Path, point: tuple[str, str]
) -> None:
    async with started(tmp_path, cells=2, hosts=2) as (cloud, session):

        async def disable_host(at: CrashPoint) -> httpx.Response:
            return await admin(session, "PATCH", f"/hosts/{at.host}", {"disabled": True})

        async def disable_cell(at: CrashPoint) -> httpx.Response:
            return await admin(session, "PATCH", f"/cells/{at.cell}", {"disabled": True})

        for act in (disable_host, disable_cell):
            answer, at, uuid = await during(cloud, session, point, act)
            assert answer.status_code == 200, answer.text
            server = await active(session, uuid)
            assert server["OS-EXT-SRV-ATTR:host"] != at.host
            if act is disable_cell:
                assert not server["OS-EXT-SRV-ATTR:host"].startswith(at.cell)
            await nothing_stays(session, uuid)


async def test_a_deletion_that_was_begun_is_shown_goes_on_or_is_taken_back(tmp_path: Path) -> None:
    async with started(tmp_path, cells=2, hosts=2) as (cloud, session):
        uuid = await create(cloud, session)
        host = (await active(session, uuid))["OS-EXT-SRV-ATTR:host"]
        cell = host.partition("-")[0]
        # As a process leaves it that stops after its first write.
        await cloud.plane.databases.api.write(partial(_mark, host=host, cell=cell, now=cloud.plane.clock.now()))

        async def is_marked() -> bool:
            found = await cloud.plane.databases.cells[cell].read(agents.deleting)
            return [agent.host for agent in found] == [host]

        await eventually(is_marked, "the cell of the host is told")
        assert (await admin(session, "GET", f"/hosts/{host}")).json()["host"]["state"] == "deleting"
        shown = (await services(session))[host]
        assert (shown["status"], shown["disabled_reason"]) == ("disabled", "being deleted")
        assert (await admin(session, "GET", f"/cells/{cell}")).json()["cell"]["deleting_at"] is not None
        other = await create(cloud, session)
        assert not (await active(session, other))["OS-EXT-SRV-ATTR:host"].startswith(cell)
        await admin(session, "PATCH", f"/cells/{cell}", {"disabled": False})
        await admin(session, "PATCH", f"/hosts/{host}", {"disabled": False})

        async def is_open() -> bool:
            return not await cloud.plane.databases.cells[cell].read(agents.deleting)

        await eventually(is_open, "the cell of the host is told again")
        assert (await admin(session, "GET", f"/cells/{cell}")).json()["cell"]["deleting_at"] is None
        await session.ask("DELETE", f"/servers/{other}")
        await cloud.plane.databases.api.write(partial(_mark, host=host, cell=cell, now=cloud.plane.clock.now()))
        await session.ask("DELETE", f"/servers/{uuid}")
        await eventually(lambda: _is_no_cell(session, cell), "the cell goes with its last server")


def _mark(connection: sa.Connection, host: str, cell: str, now: int) -> None:
    found = host_mappings.of_host(connection, host)
    assert found is not None
    host_mappings.begin_deletion(connection, found.node, now)
    [known] = [one for one in cells.every(connection) if one.name == cell]
    cells.begin_deletion(connection, known.uuid, now)


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a create names, and what takes it away again."""

    server: dict[str, Any] = {}
    hints: dict[str, Any] = {}
    take: Callable[[], Awaitable[list[httpx.Response]]]
    session: ComputeSession | None = None
    """Who asks; None: the administrator."""


async def flavor(_cloud: AllInOneCloud, session: ComputeSession) -> Made:
    body = {"flavor": {"id": "f", "name": "f", "ram": 64, "vcpus": 1, "disk": 1}}
    assert (await session.ask("POST", "/flavors", body)).status_code == 200

    async def take() -> list[httpx.Response]:
        return [await session.ask("DELETE", "/flavors/f")]

    return Made(server={"flavorRef": "f"}, take=take)


async def image(cloud: AllInOneCloud, session: ComputeSession) -> Made:
    base, token = f"{cloud.images_url}/v2/images", {"X-Auth-Token": session.token}
    body = {"name": "i", "disk_format": "raw", "container_format": "bare"}
    made = (await session.client.post(base, headers=token, json=body)).json()
    upload = {**token, "Content-Type": "application/octet-stream"}
    stored = await session.client.put(f"{base}/{made['id']}/file", headers=upload, content=b"bytes")
    assert stored.status_code == 204, stored.text

    async def take() -> list[httpx.Response]:
        return [await session.client.delete(f"{base}/{made['id']}", headers=token)]

    return Made(server={"imageRef": made["id"]}, take=take)


async def group(_cloud: AllInOneCloud, session: ComputeSession) -> Made:
    body = {"server_group": {"name": "g", "policies": ["anti-affinity"]}}
    uuid = (await session.ask("POST", "/os-server-groups", body)).json()["server_group"]["id"]

    async def take() -> list[httpx.Response]:
        return [await session.ask("DELETE", f"/os-server-groups/{uuid}")]

    return Made(hints={"group": uuid}, take=take)


async def zone(_cloud: AllInOneCloud, session: ComputeSession) -> Made:
    """A zone goes with the last host of its aggregate, and the aggregate after that."""
    body = {"aggregate": {"name": "a", "availability_zone": "east"}}
    number = (await session.ask("POST", "/os-aggregates", body)).json()["aggregate"]["id"]
    [host, *_] = sorted(await services(session))
    path = f"/os-aggregates/{number}"
    assert (await session.ask("POST", f"{path}/action", {"add_host": {"host": host}})).status_code == 200

    async def take() -> list[httpx.Response]:
        removed = await session.ask("POST", f"{path}/action", {"remove_host": {"host": host}})
        return [removed, await session.ask("DELETE", path)]

    return Made(server={"availability_zone": "east"}, take=take)


async def quota(cloud: AllInOneCloud, session: ComputeSession) -> Made:
    answer = await session.client.get(f"{cloud.identity_url}/auth/projects", headers={"X-Auth-Token": session.token})
    [project] = [one["id"] for one in answer.json()["projects"] if one["name"] == "admin"]

    async def take() -> list[httpx.Response]:
        less = await session.ask("PUT", f"/os-quota-sets/{project}", {"quota_set": {"instances": 0, "force": True}})
        return [less, await session.ask("DELETE", f"/os-quota-sets/{project}")]

    return Made(take=take)


async def namespace(_cloud: AllInOneCloud, session: ComputeSession) -> Made:
    schema = {"fields": {"free_gb": {"type": "integer", "minimum": 0}}}
    assert (await admin(session, "PUT", "/namespaces/told", schema)).status_code == 200

    async def take() -> list[httpx.Response]:
        return [await admin(session, "DELETE", "/namespaces/told")]

    return Made(take=take)


async def owner(cloud: AllInOneCloud, session: ComputeSession) -> Made:
    """A project and its only user go while their server is built; an administrator finds it, and can delete it."""
    base, token = cloud.identity_url, {"X-Auth-Token": session.token}

    async def make(noun: str, **fields: object) -> str:
        made = await session.client.post(f"{base}/{noun}s", headers=token, json={noun: {"name": "gone", **fields}})
        assert made.status_code == 201, made.text
        return str(made.json()[noun]["id"])

    project, user = await make("project"), await make("user", password="secret-word")
    listed = (await session.client.get(f"{base}/roles", headers=token)).json()["roles"]
    [role] = [one["id"] for one in listed if one["name"] == "member"]
    await session.client.put(f"{base}/projects/{project}/users/{user}/roles/{role}", headers=token)
    proof = {"methods": ["password"], "password": {"user": {"id": user, "password": "secret-word"}}}
    body = {"auth": {"identity": proof, "scope": {"project": {"id": project}}}}
    signed = await session.client.post(f"{base}/auth/tokens", json=body)
    assert signed.status_code == 201, signed.text

    async def take() -> list[httpx.Response]:
        gone = [f"{base}/users/{user}", f"{base}/projects/{project}"]
        return [await session.client.delete(url, headers=token) for url in gone]

    return Made(take=take, session=ComputeSession(session.client, signed.headers["X-Subject-Token"]))


@pytest.mark.parametrize("point", [("select", "before"), ("map", "before"), ("map", "after")])
async def test_what_a_create_names_is_taken_away_while_it_is_built(tmp_path: Path, point: tuple[str, str]) -> None:
    """The server has what it was asked with: it ends ACTIVE or in ERROR with a reason, and can be deleted."""
    async with started(tmp_path, cells=1, hosts=3) as (cloud, session):
        for thing in (flavor, image, group, zone, quota, namespace, owner):
            made = await thing(cloud, session)
            answers: list[httpx.Response] = []

            async def there(at: CrashPoint, made: Made = made, answers: list[httpx.Response] = answers) -> None:
                if not answers and (at.step, at.when) == point:
                    answers += await made.take()

            cloud.plane.steps.crash_hook = there
            uuid = await create(cloud, made.session or session, made.server, made.hints)
            server = await settled(session, uuid)
            cloud.plane.steps.crash_hook = None
            assert answers, thing
            assert all(answer.status_code < 500 for answer in answers), (thing, answers)
            if thing is zone and point == ("select", "before"):
                assert (server["status"], "No valid host" in server["fault"]["message"]) == ("ERROR", True)
            elif thing is image and server["status"] == "ERROR":
                # Its host had not fetched the image yet.
                assert server["image"]["id"] in server["fault"]["message"]
            else:
                assert server["status"] == "ACTIVE", (thing, server)
                assert thing is not image or point == ("map", "after"), "nothing gives these bytes to a host any more"
            await nothing_stays(session, uuid)
            await made.take()


async def test_a_flavor_that_another_process_deleted_a_moment_ago_is_refused(tmp_path: Path) -> None:
    async with started(tmp_path, cells=1, hosts=1) as (cloud, session):
        made = await flavor(cloud, session)
        uuid = await create(cloud, session, made.server)
        await settled(session, uuid)
        await cloud.plane.databases.api.write(partial(flavors.remove, flavorid="f"))
        answer = await asked(cloud, session, made.server)
        assert (answer.status_code, "flavorRef" in answer.text) == (400, True)
        await nothing_stays(session, uuid)


async def test_a_create_that_is_sent_again_makes_no_second_server(tmp_path: Path) -> None:
    async with started(tmp_path, cells=1, hosts=1) as (cloud, session):
        first, again = [await asked(cloud, session, key="one-create") for _ in range(2)]
        assert (first.status_code, first.json()) == (202, again.json())
        await settled(session, first.json()["server"]["id"])
        assert len((await session.ask("GET", "/servers")).json()["servers"]) == 1
