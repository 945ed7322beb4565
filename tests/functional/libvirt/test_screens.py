"""Screens of real guests, shown by a real browser through the API's port."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect

from skep.api.console_pages import MARK
from skep.contracts.eventually import PATIENCE, eventually
from skep.contracts.http_cloud import serving_cloud, signed_in
from tests.functional.libvirt.test_cloud import with_qemu
from tests.functional.libvirt.test_networks import Guests
from tests.support.boot_sectors import as_qcow2, bootable
from tests.support.browser import PARTS as BROWSER
from tests.support.browser import Page, shown
from tests.support.libvirt_hosts import PARTS

pytestmark = [
    *PARTS,
    *BROWSER,
    pytest.mark.needs_part(str(Path("/usr/share/novnc") / MARK)),
    pytest.mark.timeout(600),
]

# cld; mode 13h; es: the memory of the screen; all of it red; wait for a key; all of it green; halt
FILL = "31ff b900fa f3aa"
COLOURS = bytes.fromhex(f"fc b81300 cd10 6800a0 07 b004 {FILL} b400 cd16 b002 {FILL} f4 ebfd")
RED, GREEN = [168, 0, 0], [0, 168, 0]
MIDDLE = """(() => {
    const canvas = document.querySelector("#screen canvas");
    if (!canvas || !canvas.width) return null;
    const at = canvas.getContext("2d").getImageData(canvas.width / 2, canvas.height / 2, 1, 1);
    return [...at.data].slice(0, 3);
})()"""
"""The colour of the middle of the screen."""


async def turns(page: Page, colour: list[int]) -> None:
    async def so() -> bool:
        return bool(await page.value(MIDDLE) == colour)

    await eventually(so, f"the screen is {colour}")


async def test_a_browser_shows_the_screen_of_a_guest_and_types(tmp_path: Path) -> None:
    async with serving_cloud(with_qemu(tmp_path), cells=1, hosts=1) as cloud, signed_in(cloud) as session:
        guests = Guests(cloud, session)
        uuid = await guests.create("one", await guests.upload(as_qcow2(bootable(COLOURS), tmp_path)))

        async def url(version: int) -> str:
            if version < 6:
                asked: Any = {"os-getVNCConsole": {"type": "novnc"}}
                answer = await session.ask("POST", f"/servers/{uuid}/action", asked, version=f"2.{version}")
                return str(answer.json()["console"]["url"])
            asked = {"remote_console": {"protocol": "vnc", "type": "novnc"}}
            answer = await session.ask("POST", f"/servers/{uuid}/remote-consoles", asked, version=f"2.{version}")
            return str(answer.json()["remote_console"]["url"])

        first = await url(6)
        async with shown(first, tmp_path / "browser") as page:
            await turns(page, RED)
            assert await page.value("document.getElementById('state').textContent") == "Connected"
            assert await page.value("location.search") == "", "the token does not stay in the address"
            await page.press("x")
            await turns(page, GREEN)
        # The page is shown again, but not its console.
        async with shown(first, tmp_path / "other") as page:

            async def refused() -> bool:
                return "cannot be reached" in str(await page.value("document.getElementById('state').textContent"))

            await eventually(refused, "the token was used")
        shows = await session.client.get(await url(1))
        assert "frame-ancestors 'self'" in shows.headers["content-security-policy"]
        line = shows.url.params["path"]
        where = f"ws{cloud.api_url.removeprefix('http').removesuffix('/v2.1')}/{line}"
        async with connect(where, subprotocols=["binary"], open_timeout=PATIENCE) as console:  # type: ignore[list-item]
            assert console.subprotocol == "binary"
            assert await console.recv() == b"RFB 003.008\n"
        await session.ask("POST", f"/servers/{uuid}/action", {"os-stop": None})
        await guests.calm(uuid, "SHUTOFF")
        body = {"remote_console": {"protocol": "vnc", "type": "novnc"}}
        off = await session.ask("POST", f"/servers/{uuid}/remote-consoles", body, version="2.6")
        assert off.status_code == 409
        assert "not running" in off.text
        await guests.delete(uuid)
