"""Consoles by microversion, and on hosts whose driver has none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import msgspec

from skep.contracts.http_cloud import http_config, serving_cloud, signed_in
from tests.functional.test_images_of_servers import Images


def lacking(directory: Path) -> Any:
    """Return the configuration of a cloud whose hosts give out no lines."""
    config = http_config(directory)
    fake = msgspec.structs.replace(config.compute.fake, lacks=("serial_console", "vnc_console"))
    return msgspec.structs.replace(config, compute=msgspec.structs.replace(config.compute, fake=fake))


async def test_what_a_host_without_lines_answers(tmp_path: Path) -> None:
    async with serving_cloud(lacking(tmp_path), cells=1, hosts=1) as cloud, signed_in(cloud) as session:
        uuid = await Images(cloud, session).create()

        async def remote(protocol: str, kind: str, version: int) -> httpx.Response:
            body = {"remote_console": {"protocol": protocol, "type": kind}}
            return await session.ask("POST", f"/servers/{uuid}/remote-consoles", body, version=f"2.{version}")

        async def act(key: str, kind: str, version: int) -> httpx.Response:
            return await session.ask("POST", f"/servers/{uuid}/action", {key: {"type": kind}}, version=f"2.{version}")

        for answer in (await remote("serial", "serial", 6), await act("os-getSerialConsole", "serial", 5)):
            assert answer.status_code == 400
            assert "Unavailable console type serial" in answer.text
            assert "`serial_console`" in answer.text
        for answer in (await remote("vnc", "novnc", 6), await act("os-getVNCConsole", "novnc", 5)):
            assert answer.status_code == 400
            assert "`vnc_console`" in answer.text
        for protocol, kind, since in (
            ("vnc", "novnc", 6),
            ("rdp", "rdp-html5", 6),
            ("mks", "webmks", 8),
            ("spice", "spice-direct", 99),
        ):
            assert f"Unavailable console type {kind}" in (await remote(protocol, kind, since)).text
            before = await remote(protocol, kind, since - 1)
            assert (before.status_code, "Unavailable" in before.text) == (404 if since == 6 else 400, False)
        assert "its protocol is vnc" in (await remote("serial", "novnc", 6)).text
        assert "Unavailable console type xvpvnc" in (await act("os-getVNCConsole", "xvpvnc", 1)).text
        assert (await act("os-getVNCConsole", "serial", 1)).status_code == 400
        assert (await act("os-getVNCConsole", "novnc", 6)).status_code == 404
        for version, status in ((30, 400), (31, 404)):
            asked = await session.ask("GET", "/os-console-auth-tokens/none", version=f"2.{version}")
            assert asked.status_code == status
