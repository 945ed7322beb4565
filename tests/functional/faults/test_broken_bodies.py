"""A body that breaks off is its client's affair: 400 where it still listens, one line in the log, no traceback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from skep.admin.app import PREFIX
from skep.admin.app import ROUTES as ADMIN
from skep.api.routes import ROUTES as COMPUTE
from skep.config.sections import LOOPBACK
from skep.contracts.eventually import PATIENCE, eventually
from skep.contracts.http_cloud import http_config, serving_cloud, signed_in
from skep.processes.all_in_one import AllInOneCloud
from skep.standalone.identity.app import ROUTES as IDENTITY
from skep.standalone.images.app import ROUTES as IMAGES

WITH_BODIES = ("POST", "PUT", "PATCH")
NOBODY = "00000000-0000-0000-0000-000000000000"


@pytest.fixture
async def cloud(tmp_path: Path) -> AsyncIterator[AllInOneCloud]:
    """A cloud of one cell."""
    async with serving_cloud(http_config(tmp_path), cells=1, hosts=1) as running:
        yield running


def targets() -> list[tuple[str, str, str]]:
    """Return service, method and path of every route that takes a body."""
    found = {("api", method, PREFIX + path) for method, path, _ in ADMIN if method in WITH_BODIES}
    found |= {("api", route.method, "/v2.1" + route.path) for route in COMPUTE if route.method in WITH_BODIES}
    found |= {("identity", method, path) for method, path, _ in IDENTITY if method in WITH_BODIES}
    found |= {("images", method, path) for method, path, _ in IMAGES if method in WITH_BODIES}
    return sorted(found)


def request(method: str, path: str, token: str, signed: str = "X-Auth-Token") -> bytes:
    """Return a request whose body is half of what it says."""
    kind = "application/octet-stream" if path.endswith("/file") else "application/json"
    return (
        f"{method} {path} HTTP/1.1\r\nHost: here\r\n{signed}: {token}\r\nContent-Type: {kind}\r\n"
        "Content-Length: 100\r\n\r\n{"
    ).encode()


async def lines_of(logs: list[Any], path: str) -> list[Any]:
    """Return the lines of the log about a request, once there is one."""

    async def some() -> list[Any]:
        return [line for line in logs if path in (line.get("path"), line.get("template"))]

    return await eventually(some, f"a line about {path}")


async def test_every_route_takes_it_for_what_it_is(cloud: AllInOneCloud) -> None:
    async with signed_in(cloud) as session:
        for service, method, template in targets():
            path = template.replace("{", "").replace("}", "")
            for half_closed in (True, False):
                with capture_logs() as logs:
                    reader, writer = await asyncio.open_connection(LOOPBACK, cloud.http.ports[service])
                    writer.write(request(method, path, session.token))
                    await writer.drain()
                    if half_closed:
                        writer.write_eof()
                        async with asyncio.timeout(PATIENCE):
                            status = int((await reader.readline()).split()[1])
                        assert 400 <= status < 500, (method, path, status)
                    writer.transport.abort()
                    lines = await lines_of(logs, path)
                assert [line["event"] for line in lines] == ["request"], (method, path, logs)
                assert 400 <= lines[0]["status"] < 500
                assert [line for line in logs if line["log_level"] in ("error", "critical")] == []


async def test_who_still_listens_is_told(cloud: AllInOneCloud) -> None:
    async with signed_in(cloud) as session:
        url = f"{cloud.api_url.removesuffix('/v2.1')}{PREFIX}/cells/cell1/enrolment-tokens"
        made = await session.client.post(url, json={"uses": 1}, headers={"X-Auth-Token": session.token})
        joining = (f"Bearer {made.json()['enrolment_token']['secret']}", "Authorization")
        for service, path, *signed in (
            ("api", "/admin/v1/enrolments", *joining),
            ("api", "/admin/v1/cells", session.token),
            ("api", "/v2.1/servers", session.token),
            ("identity", "/v3/auth/tokens", session.token),
            ("images", "/v2/images", session.token),
        ):
            with capture_logs() as logs:
                reader, writer = await asyncio.open_connection(LOOPBACK, cloud.http.ports[service])
                writer.write(request("POST", path, *signed))
                writer.write_eof()
                async with asyncio.timeout(PATIENCE):
                    answer = await reader.read()
                writer.transport.abort()
                (line,) = await lines_of(logs, path)
            assert answer.startswith(b"HTTP/1.1 400 "), path
            assert b"broke off" in answer
            assert line["status"] == 400


async def test_half_an_image_is_no_image(cloud: AllInOneCloud) -> None:
    async with signed_in(cloud) as session:
        headers = {"X-Auth-Token": session.token}
        body = {"name": "half", "disk_format": "raw", "container_format": "bare"}
        made = (await session.client.post(f"{cloud.images_url}/v2/images", json=body, headers=headers)).json()
        path = f"/v2/images/{made['id']}/file"
        with capture_logs() as logs:
            _, writer = await asyncio.open_connection(LOOPBACK, cloud.http.ports["images"])
            writer.write(request("PUT", path, session.token))
            await writer.drain()
            writer.transport.abort()
            await lines_of(logs, path)
        shown = (await session.client.get(f"{cloud.images_url}/v2/images/{made['id']}", headers=headers)).json()
        assert shown["status"] == "queued"
