"""A whole cloud on the driver of another package: what hosts do goes through the port alone."""

from __future__ import annotations

import shutil
import sys
import tomllib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from skep.compute.drivers.registry import GROUP
from skep.contracts.cloud import PROJECT, SMALL, USER, Cloud, quick_config, running_cloud
from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import http_config, serving_cloud, signed_in
from skep.database.cell import actions, tasks
from skep.domain.context import RequestContext
from skep.domain.errors import Misconfigured
from skep.domain.ids import new_request_id
from skep.domain.instances import PowerState, State, Task
from tests.support.installing import install
from tests.support.rows import asking

EXAMPLE = Path(__file__).parents[2] / "examples" / "process_driver"


@pytest.fixture(autouse=True)
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(site)
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    install(site, "process_driver", project["entry-points"])
    shutil.copy(EXAMPLE / "process_driver.py", site)
    yield site
    for name in ("process_driver", "core_driver"):
        sys.modules.pop(name, None)


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
    with pytest.raises(Misconfigured, match=r"compute\.driver: .*libvrt.*fake, libvirt, processes"):
        await cloud.start()
    await cloud.stop()


CORE_ONLY = """
from skep.compute.drivers.fake import FakeDriver

class CoreOnly:
    def __init__(self, fake):
        for operation in "on_change close facts guests plan prepare undo spawn destroy".split():
            setattr(self, operation, getattr(fake, operation))

def make(setup):
    return CoreOnly(FakeDriver(setup.directory, setup.host))
"""


async def test_an_action_that_the_driver_lacks_leaves_the_server_as_it_was_and_says_so(
    tmp_path: Path, site: Path
) -> None:
    site.joinpath("core_driver.py").write_text(CORE_ONLY)
    install(site, "core_driver", {GROUP: {"core": "core_driver:make"}})
    config = quick_config()
    config = msgspec.structs.replace(config, compute=msgspec.structs.replace(config.compute, driver="core"))
    async with running_cloud(tmp_path / "cloud", config, cells=1, hosts=1) as cloud:
        [uuid] = await cloud.create()
        await cloud.settled([uuid])
        context = RequestContext(request_id=new_request_id(), project_id=PROJECT, user_id=USER)
        action = asking(Task.POWERING_OFF, frozenset(State))
        begin = partial(tasks.begin, uuid=uuid, action=action, context=context, now=cloud.clock.now())
        database = cloud.plane.databases.cells["cell1"]
        assert await database.write(begin)
        read = partial(actions.events_of, instance=uuid, request_id=context.request_id)

        async def over() -> actions.ActionEvent | None:
            return next((event for event in await database.read(read) if event.finished_at is not None), None)

        event = await eventually(over, "the action is over")
        assert event is not None
        assert (event.result, event.host) == ("Error", "cell1-host1")
        assert "lacks the capability `power`" in str(event.details)
        [server] = await cloud.settled([uuid])
        assert (server.state, server.fault) == (State.ACTIVE, None)
        assert [guest.power_state for guest in await cloud.guests()] == [PowerState.RUNNING]


@pytest.mark.parametrize("switched_off", [False, True])
async def test_the_api_refuses_by_name_what_the_driver_lacks_and_writes_nothing(
    tmp_path: Path, site: Path, switched_off: bool
) -> None:
    config = http_config(tmp_path)
    if switched_off:
        fake = msgspec.structs.replace(config.compute.fake, lacks=("power", "pause", "suspend"))
        compute = msgspec.structs.replace(config.compute, fake=fake)
    else:
        site.joinpath("core_driver.py").write_text(CORE_ONLY)
        install(site, "core_driver", {GROUP: {"core": "core_driver:make"}})
        compute = msgspec.structs.replace(config.compute, driver="core")
    config = msgspec.structs.replace(config, compute=compute)
    async with serving_cloud(config, cells=1, hosts=1) as cloud, signed_in(cloud) as session:
        listed = await session.client.get(f"{cloud.images_url}/v2/images", headers={"X-Auth-Token": session.token})
        image = listed.json()["images"][0]["id"]
        body = {"server": {"name": "one", "imageRef": image, "flavorRef": "1", "networks": "none"}}
        uuid = (await session.ask("POST", "/servers", body, version="2.37")).json()["server"]["id"]

        async def active() -> bool:
            return bool((await session.ask("GET", f"/servers/{uuid}")).json()["server"]["status"] == "ACTIVE")

        await eventually(active, "the server is active")
        for key, capability in {"os-stop": "power", "pause": "pause", "suspend": "suspend"}.items():
            refused = await session.ask("POST", f"/servers/{uuid}/action", {key: None})
            assert refused.status_code == 409
            assert f"lacks the capability `{capability}`" in refused.json()["conflictingRequest"]["message"]
        server = (await session.ask("GET", f"/servers/{uuid}")).json()["server"]
        assert (server["status"], server["OS-EXT-STS:task_state"]) == ("ACTIVE", None)
        history = (await session.ask("GET", f"/servers/{uuid}/os-instance-actions")).json()["instanceActions"]
        assert [action["action"] for action in history] == ["create"]
        assert (await session.ask("DELETE", f"/servers/{uuid}")).status_code == 204


REFUSING = """
from msgspec.structs import replace
from skep.compute.drivers.fake import FakeDriver
from skep.domain.guest_keys import KeyRule, RefusedKeys

class Refusing(FakeDriver):
    async def facts(self):
        refused_keys = RefusedKeys(extra_specs=(KeyRule("hw:watchdog_*"),)) if self._host.endswith("1") else None
        return replace(await super().facts(), refused_keys=refused_keys)

def make(setup):
    return Refusing(setup.directory, setup.host)
"""


@pytest.mark.parametrize("hosts", [1, 2])
async def test_what_a_host_refuses_goes_to_another_or_is_refused_before_anything_is_allocated(
    tmp_path: Path, site: Path, hosts: int
) -> None:
    site.joinpath("core_driver.py").write_text(REFUSING)
    install(site, "core_driver", {GROUP: {"refusing": "core_driver:make"}})
    config = quick_config()
    config = msgspec.structs.replace(config, compute=msgspec.structs.replace(config.compute, driver="refusing"))
    flavor = msgspec.structs.replace(SMALL, extra_specs={"hw:watchdog_action": "reset"})
    async with running_cloud(tmp_path / "cloud", config, cells=1, hosts=hosts) as cloud:
        servers = await cloud.settled(await cloud.create(3, flavor=flavor))
        if hosts > 1:
            assert {(server.state, (server.host or "")[-1:]) for server in servers} == {(State.ACTIVE, "2")}
            return
        for server in servers:
            assert (server.state, server.host) == (State.ERROR, None)
            assert server.fault is not None
            assert "hw:watchdog_action" in server.fault.message
        assert await cloud.guests() == []


NETWORKED = CORE_ONLY.replace("class CoreOnly:", "class CoreOnly:\n    wants_networks = True\n").replace(
    "def make(setup):\n    return CoreOnly(",
    """    def tunnel_address(self):
        return "192.0.2.7"

    async def networks(self, wanted):
        ports = [port.server for segment in wanted.segments for port in segment.ports]
        self.file.write_text(" ".join(ports))

def make(setup):
    CoreOnly.file = setup.directory / "told"
    return CoreOnly(""",
)


async def test_a_driver_that_brings_networks_is_told_of_them_before_the_guest(tmp_path: Path, site: Path) -> None:
    site.joinpath("core_driver.py").write_text(NETWORKED)
    install(site, "core_driver", {GROUP: {"core": "core_driver:make"}})
    config = http_config(tmp_path)
    compute = msgspec.structs.replace(config.compute, driver="core", networks_seconds=3600.0)
    config = msgspec.structs.replace(config, compute=compute)
    async with serving_cloud(config, cells=1, hosts=1) as cloud, signed_in(cloud, "demo", "demo") as session:
        listed = await session.client.get(f"{cloud.images_url}/v2/images", headers={"X-Auth-Token": session.token})
        image = listed.json()["images"][0]["id"]
        body = {"server": {"name": "one", "imageRef": image, "flavorRef": "1", "networks": "auto"}}
        uuid = (await session.ask("POST", "/servers", body, version="2.37")).json()["server"]["id"]

        async def active() -> bool:
            return bool((await session.ask("GET", f"/servers/{uuid}")).json()["server"]["status"] == "ACTIVE")

        await eventually(active, "the server is active")
        assert cloud.plane.directory.host("cell1", "cell1-host1").joinpath("told").read_text() == uuid
