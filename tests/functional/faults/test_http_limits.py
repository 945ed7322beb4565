"""Every port of a cloud keeps to the configured limits, and goes on answering."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from pathlib import Path

import httpx
import msgspec

from skep.config.http import HttpSettings
from skep.config.sections import LOOPBACK
from skep.contracts.eventually import PATIENCE
from skep.contracts.http_cloud import http_config, serving_cloud, signed_in


async def status_of(port: int, *pieces: bytes) -> int:
    """Send what is no whole request to a port; return the status of its answer."""
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    try:
        for piece in pieces:
            writer.write(piece)
            with contextlib.suppress(ConnectionError):
                await writer.drain()
        async with asyncio.timeout(PATIENCE):
            return int((await reader.readline()).split()[1])
    finally:
        writer.transport.abort()


async def test_every_port_refuses_what_never_ends(tmp_path: Path) -> None:
    limits = HttpSettings(max_header_bytes=8192, header_timeout=0.2, body_timeout=0.2)
    config = msgspec.structs.replace(http_config(tmp_path), http=limits)
    async with serving_cloud(config, cells=1, hosts=1) as cloud:
        assert set(cloud.http.ports) == {"api", "identity", "images", "networks"}
        for port in cloud.http.ports.values():
            assert await status_of(port, b"GET / HTTP/1.1\r\nX: ", *[b"a" * 65536] * 32) == 431
            assert await status_of(port, b"GET / HTTP/1.1\r\nX: ") == 408
        half = b"Host: here\r\nContent-Length: 100\r\nContent-Type: application/json\r\n\r\n{"
        assert await status_of(cloud.http.ports["identity"], b"POST /v3/auth/tokens HTTP/1.1\r\n" + half) == 408
        async with signed_in(cloud) as session:
            token = b"X-Auth-Token: " + session.token.encode() + b"\r\n"
            for path in (b"/v2.1/servers", b"/admin/v1/cells"):
                assert (
                    await status_of(cloud.http.ports["api"], b"POST " + path + b" HTTP/1.1\r\n" + token + half) == 408
                )
            assert (await session.ask("GET", "/servers")).status_code == 200
        async with httpx.AsyncClient(timeout=PATIENCE) as client:
            lines = (await client.get(f"http://{LOOPBACK}:{cloud.http.ports['api']}/metrics")).text
        for name in ("api", "identity", "images", "networks"):
            assert f'skep_http_refused_total{{port="{name}.port",reason="slow_headers"}} 1.0' in lines


async def test_clients_that_never_finish_do_not_keep_others_out(tmp_path: Path) -> None:
    config = msgspec.structs.replace(http_config(tmp_path), http=HttpSettings(max_connections=20))
    async with contextlib.AsyncExitStack() as stack:
        cloud = await stack.enter_async_context(serving_cloud(config, cells=1, hosts=1))
        for port in cloud.http.ports.values():
            for _ in range(60):
                client = stack.enter_context(socket.create_connection((LOOPBACK, port)))
                client.sendall(b"GET / HTTP/1.1\r\n")
                await asyncio.sleep(0)
        async with signed_in(cloud) as session:
            assert (await session.ask("GET", "/servers")).status_code == 200
            images = await session.client.get(f"{cloud.images_url}/v2/images", headers={"X-Auth-Token": session.token})
            assert images.status_code == 200
