"""Consoles of servers: asked for by the real client, and attended through the API's own port."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from skep.api.console_pages import PAGE
from skep.contracts.eventually import PATIENCE, eventually
from skep.processes.all_in_one import AllInOneCloud
from tests.support.openstack import openstack, openstack_quiet, refusal


async def server(cloud: AllInOneCloud, name: str) -> str:
    yaml = cloud.clouds_yaml
    made = await openstack(yaml, "server", "create", "--image", "tiny", "--flavor", "m1.tiny", "--wait", name)
    return str(made["id"])


async def address(cloud: AllInOneCloud, name: str) -> str:
    shown = await openstack(cloud.clouds_yaml, "console", "url", "show", "--serial", name)
    assert (shown["protocol"], shown["type"]) == ("serial", "serial")
    return str(shown["url"])


async def screen_address(cloud: AllInOneCloud, name: str) -> str:
    """Return where the line of a screen is; the viewer's page is told it."""
    shown = await openstack(cloud.clouds_yaml, "console", "url", "show", name)
    assert (shown["protocol"], shown["type"]) == ("vnc", "novnc")
    page = urlsplit(str(shown["url"]))
    assert page.path == PAGE
    return f"ws://{page.netloc}/{parse_qs(page.query)['path'][0]}"


@contextlib.asynccontextmanager
async def attended(url: str, **more: Any) -> AsyncIterator[ClientConnection]:
    async with connect(url, subprotocols=["binary"], open_timeout=PATIENCE, **more) as console:  # type: ignore[list-item]
        yield console


async def heard(console: ClientConnection, wanted: bytes) -> bytes:
    """Return what is said until something wanted is."""
    said = b""
    async with asyncio.timeout(PATIENCE):
        while wanted not in said:
            piece = await console.recv()
            assert isinstance(piece, bytes)
            said += piece
    return said


async def command(yaml: Path, name: str, typed: bytes) -> tuple[int, bytes]:
    """Run `skep server console` with some input; return its status and what it printed."""
    run = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "skep.cli",
        "server",
        "console",
        name,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "OS_CLIENT_CONFIG_FILE": str(yaml), "OS_CLOUD": "skep"},
    )
    async with asyncio.timeout(PATIENCE):
        printed, _ = await run.communicate(typed)
    assert run.returncode is not None
    return run.returncode, printed


async def refused(url: str, **more: Any) -> None:
    with pytest.raises(InvalidStatus) as caught:
        async with attended(url, **more):
            pass
    assert caught.value.response.status_code == 403


async def test_consoles(shared_cloud: AllInOneCloud) -> None:
    yaml = shared_cloud.clouds_yaml
    one, two = await server(shared_cloud, "one"), await server(shared_cloud, "two")
    # A serial line says which guest it is of.
    url = await address(shared_cloud, "one")
    async with attended(url) as console:
        assert console.subprotocol == "binary"
        assert one.encode() in await heard(console, b"one:~# ")
        await console.send(b"hostname\r")
        assert await heard(console, b"one:~# ") == b"hostname\r\none\r\none:~# "
        # Its address is good once, also while it is open.
        await refused(url)
        await console.send("exit\r")
        assert b"logout" in await heard(console, b"logout")
        with pytest.raises(ConnectionClosed):
            await console.recv()
    await refused(url)
    await refused(f"{url}x")
    await refused(url.partition("?")[0])
    # Pages of others may not open it; the token may stand in a cookie.
    other = await address(shared_cloud, "two")
    await refused(other, origin="http://evil.example")
    bare, _, token = other.partition("?token=")
    told = await openstack(yaml, "--os-compute-api-version", "2.31", "console", "connection", "show", token)
    assert told["instance_uuid"] == two
    own = f"http://{urlsplit(url).netloc}"
    async with attended(bare, additional_headers={"Cookie": f"token={token}"}, origin=own) as console:
        await heard(console, b"two:~# ")
        # It ends with the guest.
        await openstack_quiet(yaml, "server", "delete", "--wait", "two")
        with pytest.raises(ConnectionClosed):
            await heard(console, b"never said")
    # Our own command attends to it; without a terminal it ends with its input.
    status, printed = await command(yaml, "one", b"hostname\r")
    assert (status, b"hostname\r\none\r\n" in printed) == (0, True)
    # Other kinds are not there.
    for kind in ("--xvpvnc", "--spice", "--rdp", "--mks"):
        assert "Unavailable console type" in await refusal(yaml, "console", "url", "show", kind, "one")
    # A screen is handed through in the same way, and not to the token of another console.
    serial, screen = await address(shared_cloud, "one"), await screen_address(shared_cloud, "one")
    await refused(serial.replace("/consoles/serial", "/consoles/vnc"))
    async with attended(screen) as console:
        await heard(console, b"RFB 003.008\n")
    unused = await address(shared_cloud, "one")
    await openstack_quiet(yaml, "server", "stop", "one")

    async def stopped() -> bool:
        return bool((await openstack(yaml, "server", "show", "one"))["status"] == "SHUTOFF")

    await eventually(stopped, "the server is off")
    assert "not running" in await refusal(yaml, "console", "url", "show", "--serial", "one")
    await refused(unused)
    status, printed = await command(yaml, "one", b"")
    assert (status, printed) == (1, f"skep: one is switched off; start it: openstack server start {one}\n".encode())
