"""A guest of QEMU goes with its disk to another host of a cloud, with which its own shares nothing."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import http_config, serving_cloud, signed_in
from tests.functional.test_images_of_servers import Images
from tests.support.libvirt_daemons import DAEMON_PARTS, HOSTS, two_hosts

pytestmark = [*DAEMON_PARTS, pytest.mark.timeout(600)]

_HEAD = bytes.fromhex(
    "fc 31c0 8ed8 8ec0 8ed0 bc007c"  # cld; ds = es = ss = 0; sp = 7c00
    "fe06 427c"  # one more boot: the byte at 7c42
    "b80103 bb007c b90100 b600 cd13"  # write this sector back to the disk it came from
    "be3c7c baf803 ac 84c0 7403 ee ebf8 f4 ebfd"  # say what stands at 7c3c on the serial line; halt
)
COUNTS_BOOTS = ((_HEAD.ljust(0x3C, b"\x90") + b"boots=0\r\n\0").ljust(510, b"\0") + b"\x55\xaa").ljust(1 << 20, b"\0")
"""A disk, raw: its guest says how often it has booted from it."""


async def test_a_guest_finds_its_disk_on_the_other_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = http_config(tmp_path)
    wired = msgspec.structs.replace(config, compute=msgspec.structs.replace(config.compute, move_address="127.0.0.1"))
    with two_hosts(monkeypatch, {}) as directories:
        async with serving_cloud(wired, cells=1, hosts=2) as cloud, signed_in(cloud) as session:
            images = Images(cloud, session)
            flavor = {"id": "boots", "name": "boots", "ram": 64, "vcpus": 1, "disk": 0}
            assert (await session.ask("POST", "/flavors", {"flavor": flavor})).status_code == 200
            image = await images.upload(COUNTS_BOOTS)
            body = {"name": "one", "imageRef": image, "flavorRef": "boots", "networks": "none"}
            made = await session.ask("POST", "/servers", {"server": body}, version="2.37")
            uuid = str(made.json()["server"]["id"])

            async def has_booted(times: int) -> None:
                async def so() -> bool:
                    answer = await session.ask("POST", f"/servers/{uuid}/action", {"os-getConsoleOutput": {}})
                    said = answer.json()["output"] if answer.status_code == 200 else ""
                    return re.findall(r"boots=(.)", said)[-1:] == [str(times)]

                await eventually(so, f"the guest has booted {times} times")

            async def host() -> str:
                return str((await images.server(uuid))["OS-EXT-SRV-ATTR:host"])

            def left(name: str) -> list[str]:
                return [path.name for path in (directories[name] / "guests").iterdir()]

            await images.calm(uuid, "ACTIVE")
            await has_booted(1)
            before = await host()
            [other] = set(HOSTS) - {before}
            await images.act(uuid, {"migrate": None})
            await images.calm(uuid, "VERIFY_RESIZE")
            assert await host() == other
            await has_booted(2)
            confirmed = await session.ask("POST", f"/servers/{uuid}/action", {"confirmResize": None})
            assert confirmed.status_code == 204, confirmed.text
            await images.calm(uuid, "ACTIVE")

            async def gone() -> bool:
                return left(before) == []

            await eventually(gone, "nothing is left on the source")
            assert not list(cloud.directory.root.glob("hosts/*/*/arrivals/*"))
            assert not (cloud.directory.root / "exchange").exists()
            assert (await session.ask("DELETE", f"/servers/{uuid}")).status_code == 204

            async def nothing() -> bool:
                return left(before) == left(other) == []

            await eventually(nothing, "nothing is left of the server")
