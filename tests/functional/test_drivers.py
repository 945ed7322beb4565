"""A whole cloud on the driver of another package: what hosts do goes through the port alone."""

from __future__ import annotations

import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from skep.contracts.cloud import Cloud, quick_config, running_cloud
from skep.domain.errors import Misconfigured
from skep.domain.instances import PowerState, State
from tests.support.installing import install

EXAMPLE = Path(__file__).parents[2] / "examples" / "process_driver"


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(site)
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    install(site, "process_driver", project["entry-points"])
    shutil.copy(EXAMPLE / "process_driver.py", site)
    yield
    sys.modules.pop("process_driver", None)


async def test_servers_are_built_and_deleted_on_it(tmp_path: Path) -> None:
    config = quick_config()
    compute = msgspec.structs.replace(config.compute, driver="processes", driver_options={"vcpus": 2})
    config = msgspec.structs.replace(config, compute=compute)
    async with running_cloud(tmp_path / "cloud", config, cells=1, hosts=2) as cloud:
        uuids = await cloud.create(2)
        assert {server.state for server in await cloud.settled(uuids)} == {State.ACTIVE}
        assert [guest.power_state for guest in await cloud.guests()] == [PowerState.RUNNING] * 2
        for uuid in uuids:
            await cloud.delete(uuid)
        await cloud.gone(uuids)
        assert await cloud.guests() == []
        assert list((tmp_path / "cloud").rglob("guests/*")) == []


async def test_a_driver_that_nobody_brings_is_named(tmp_path: Path) -> None:
    config = quick_config()
    compute = msgspec.structs.replace(config.compute, driver="libvrt")
    cloud = Cloud(tmp_path / "cloud", msgspec.structs.replace(config, compute=compute), cells=1, hosts=1)
    with pytest.raises(Misconfigured, match=r"no driver is called libvrt; there are fake, processes"):
        await cloud.start()
    await cloud.stop()
