"""What clients send wrong is answered with the right 4xx, and nothing is stored."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import ComputeSession, http_config, serving_cloud, signed_in
from skep.processes.all_in_one import AllInOneCloud


@pytest.fixture
async def cloud(tmp_path: Path) -> AsyncIterator[AllInOneCloud]:
    """A cloud of one cell."""
    async with serving_cloud(http_config(tmp_path), cells=1, hosts=1) as running:
        yield running


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"{", "application/json", 400),
        (b"", "application/json", 400),
        (b"[]", "application/json", 400),
        (b'{"server": []}', "application/json", 400),
        (b'{"server": {"name": "a\\u0000"}}', "application/json", 400),
        (b'{"server": {"name": "\\ud800"}}', "application/json", 400),
        (b'{"server": {}}', "text/xml", 415),
        (b"\xff\xfe", "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b'{"server": {"name": "' + b"x" * 10_000_000 + b'"}}', "application/json", 413),
    ],
)
async def test_bodies_that_are_none(cloud: AllInOneCloud, content: bytes, kind: str, status: int) -> None:
    async with signed_in(cloud) as session:
        headers = {"X-Auth-Token": session.token, "Content-Type": kind}
        answer = await session.client.post("/servers", content=content, headers=headers)
        assert answer.status_code == status, answer.text
        [fault] = answer.json().values()
        assert fault["code"] == status
        assert (await session.ask("GET", "/servers")).json()["servers"] == []


async def test_tokens_that_are_none(cloud: AllInOneCloud) -> None:
    async with signed_in(cloud) as session:
        forged = session.token[:-4] + ("AAAA" if not session.token.endswith("AAAA") else "BBBB")
        for token in ("", "nonsense", forged, "x" * 10_000):
            answer = await session.client.get("/servers", headers={"X-Auth-Token": token} if token else {})
            assert answer.status_code == 401
            assert answer.json()["error"]["code"] == 401
            assert answer.headers["WWW-Authenticate"].startswith("Keystone uri=")


async def test_others_servers_are_not_found(cloud: AllInOneCloud) -> None:
    async with signed_in(cloud) as admin, signed_in(cloud, "demo", "demo") as demo:
        server = await create(cloud, admin)
        paths = [f"/servers/{server}", f"/servers/{server}/metadata", f"/servers/{server}/os-instance-actions"]
        for path in paths:
            assert (await demo.ask("GET", path)).status_code == 404
        assert (await demo.ask("DELETE", f"/servers/{server}")).status_code == 404
        assert (await demo.ask("POST", f"/servers/{server}/action", {"os-stop": None})).status_code == 404
        assert (await admin.ask("GET", f"/servers/{server}")).status_code == 200


async def test_a_foreign_project_in_the_path(cloud: AllInOneCloud) -> None:
    async with signed_in(cloud) as admin, signed_in(cloud, "demo", "demo") as demo:
        shown = (await admin.ask("GET", f"/servers/{await create(cloud, admin)}")).json()["server"]
        answer = await demo.ask("GET", f"/{shown['tenant_id']}/servers")
        assert answer.status_code == 400
        assert "project_id" in answer.text


@pytest.mark.parametrize(("version", "status"), [("2.105", 406), ("2.0", 406), ("two", 400), ("2.1.1", 400)])
async def test_microversions_that_are_none(cloud: AllInOneCloud, version: str, status: int) -> None:
    async with signed_in(cloud) as session:
        assert (await session.ask("GET", "/servers", version=version)).status_code == status


async def create(cloud: AllInOneCloud, session: ComputeSession) -> str:
    """Create a server and wait until it runs."""
    answer = await session.client.get(f"{cloud.images_url}/v2/images", headers={"X-Auth-Token": session.token})
    body = {"server": {"name": "one", "imageRef": answer.json()["images"][0]["id"], "flavorRef": "1"}}
    made = await session.ask("POST", "/servers", body)
    assert made.status_code == 202, made.text
    server = str(json.loads(made.text)["server"]["id"])

    async def active() -> bool:
        return bool((await session.ask("GET", f"/servers/{server}")).json()["server"]["status"] == "ACTIVE")

    await eventually(active, "the server is ACTIVE")
    return server
