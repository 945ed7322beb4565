"""What a host has at hand before its first transfer, and what room it has for images."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from skep.compute.image_transfers import Taker
from skep.config.compute import ComputeSettings, HostImagesSettings
from skep.config.sections import Config
from skep.domain.builds import BuildFailure
from skep.domain.clock import Clock
from skep.domain.images import Image
from skep.processes.host_images import HostImages
from tests.support.agents import CONTEXT

FIRST_TRANSFER = """
import asyncio, sys
from pathlib import Path

import httpx

from skep.config.compute import ComputeSettings, HostImagesSettings
from skep.config.sections import Config
from skep.domain.clock import Clock
from skep.processes.host_images import HostImages


async def main(directory: Path) -> None:
    section = HostImagesSettings(by_ticket=True, endpoint="http://127.0.0.1:1")
    images = HostImages(Config(compute=ComputeSettings(images=section)), directory, Clock())
    await images.load()
    loaded = set(sys.modules)
    async with httpx.AsyncClient(verify=False, trust_env=False) as client:
        try:
            await client.get("http://127.0.0.1:1/")
        except httpx.ConnectError:
            print(sorted(set(sys.modules) - loaded))
    await images.close()


asyncio.run(main(Path(sys.argv[1])))
"""


def test_the_first_transfer_loads_no_module(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FIRST_TRANSFER, tmp_path], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


async def test_what_the_disk_owes_to_guests_stays_free(tmp_path: Path) -> None:
    section = HostImagesSettings(by_ticket=True, endpoint="http://127.0.0.1:1")
    images = HostImages(Config(compute=ComputeSettings(images=section)), tmp_path / "images", Clock())
    assert images.cache is not None
    image = Image(id="large", size=64 << 20)
    failed = await images.cache.take(image, Taker(CONTEXT))
    assert isinstance(failed, BuildFailure)
    assert failed.error == "ImageUnavailable", "there is room, and no ticket"
    images.owe(lambda directory: shutil.disk_usage(directory).free)
    failed = await images.cache.take(image, Taker(CONTEXT))
    assert isinstance(failed, BuildFailure)
    assert (failed.error, "no room for 67108864 bytes" in failed.message) == ("StorageUnavailable", True)
    await images.close()
