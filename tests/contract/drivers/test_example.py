"""The driver of another package, installed as such: `examples/process_driver/` keeps the contract."""

from __future__ import annotations

import re
import shutil
import sys
import tomllib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.compute.drivers.base import Driver, DriverError, PowerDriver
from skep.compute.drivers.capabilities import capabilities_of
from skep.compute.drivers.contents import GuestContents
from skep.compute.drivers.fake import FakeDriver
from skep.compute.drivers.registry import DriverSetup, make_driver
from skep.config.compute import ComputeSettings
from skep.contracts.drivers import DriverContract
from skep.contracts.eventually import eventually
from skep.domain.capabilities import Capability
from skep.domain.clock import Clock
from skep.domain.errors import Misconfigured
from skep.domain.ids import InstanceUuid, new_uuid
from skep.domain.images import Image
from skep.domain.instances import Instance, PowerState
from tests.support.agents import instance
from tests.support.installing import install

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "process_driver"
SECTION = ComputeSettings(driver="processes")


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


@pytest.fixture
def small() -> Instance:
    return instance()


def made(directory: Path, section: ComputeSettings = SECTION) -> Driver:
    return make_driver(DriverSetup(host="host-1", directory=directory, clock=Clock(), section=section))


class TestProcessDriver(DriverContract):
    @pytest.fixture
    async def driver(self, tmp_path: Path) -> AsyncIterator[Driver]:
        self.directory = tmp_path
        driver = made(tmp_path)
        yield driver
        left = [guest.instance for guest in await driver.guests()]
        for uuid in left:
            await driver.destroy(uuid)
        assert left == [], "each test removes its guests"

    def inside(self, driver: Driver, instance: InstanceUuid) -> GuestContents | None:  # noqa: ARG002
        for path in (self.directory / "guests").glob(f"{instance}_*/inside.json"):
            return msgspec.json.decode(path.read_bytes(), type=GuestContents)
        return None

    async def restarted(self, driver: Driver) -> Driver:
        driver.close()
        return made(self.directory)


def test_it_has_the_capability_power(tmp_path: Path) -> None:
    assert capabilities_of(made(tmp_path)) == {Capability.POWER}


def test_its_options_are_its_own(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"driver_options\.comand: unknown key, expected one of command, disk_gb"):
        made(tmp_path, ComputeSettings(driver="processes", driver_options={"comand": ["true"]}))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"command": []}, "compute.driver_options.command: expected array of length >= 1"),
        ({"command": ["true", 1]}, "compute.driver_options.command[1]: expected str, got int"),
        ({"vcpus": "x"}, "compute.driver_options.vcpus: expected int, got str"),
        ({"vcpus": 0}, "compute.driver_options.vcpus: expected int >= 1"),
        ({"disk_gb": -1}, "compute.driver_options.disk_gb: expected int >= 0"),
    ],
)
def test_a_wrong_option_is_named_with_what_was_expected(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(Misconfigured) as raised:
        made(tmp_path, ComputeSettings(driver="processes", driver_options=options))
    assert str(raised.value) == said


async def test_a_program_that_is_not_there_is_named(tmp_path: Path, small: Instance) -> None:
    driver = made(tmp_path, ComputeSettings(driver="processes", driver_options={"command": ["no-such-program"]}))
    with pytest.raises(DriverError, match="command: there is no program no-such-program") as raised:
        await driver.spawn(small, 1, small.flavor.resources())
    assert raised.value.error == "SpawnFailed"
    [left] = await driver.guests()
    assert not left.whole
    await driver.destroy(small.uuid, 1)
    assert await driver.guests() == ()


class Died(Exception):
    """The agent is dead."""


async def test_an_agent_that_dies_before_it_notes_a_process_leaves_one_that_is_found(
    tmp_path: Path, small: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = made(tmp_path)
    module = sys.modules["process_driver"]
    write = module._write

    def dies(path: Path, value: Any) -> None:
        if getattr(value, "process", None) is not None:
            raise Died
        write(path, value)

    small = msgspec.structs.replace(small, uuid=InstanceUuid(new_uuid()))

    def running() -> int:
        label = f"SKEP_GUEST={small.uuid}/1".encode()
        return sum(label in module._environment(number) for number in module._sessions())

    async def one_runs() -> bool:
        return running() == 1

    with monkeypatch.context() as patch:
        patch.setattr(module, "_write", dies)
        with pytest.raises(Died):
            await driver.spawn(small, 1, small.flavor.resources())
    await eventually(one_runs, "one process runs")
    again = made(tmp_path)
    assert [guest.whole for guest in await again.guests()] == [False]
    await eventually(one_runs, "one process runs")
    assert await again.spawn(small, 1, small.flavor.resources()) is PowerState.RUNNING
    await eventually(one_runs, "one process runs")
    assert isinstance(again, PowerDriver)

    await again.power_off(small.uuid)
    with monkeypatch.context() as patch:
        patch.setattr(module, "_write", dies)
        with pytest.raises(Died):
            await again.power_on(small.uuid)
    await eventually(one_runs, "one process runs")
    last = made(tmp_path)
    assert isinstance(last, PowerDriver)
    assert [guest.power_state for guest in await last.guests()] == [PowerState.RUNNING]
    assert await last.power_on(small.uuid) is PowerState.RUNNING
    await eventually(one_runs, "one process runs")
    await last.destroy(small.uuid, 1)
    assert running() == 0


def test_what_it_cannot_do_is_refused_by_the_plan(tmp_path: Path, small: Instance) -> None:
    image = Image(id="image", properties={"hw_firmware_type": "uefi"})
    with pytest.raises(DriverError, match="hw_firmware_type"):
        made(tmp_path).plan(msgspec.structs.replace(small, image=image), 1)


def test_the_page_shows_what_the_example_does() -> None:
    page = (ROOT / "docs" / "drivers.md").read_text()
    code = squeezed((EXAMPLE / "process_driver.py").read_text() + (EXAMPLE / "pyproject.toml").read_text())
    shown = re.findall(r"^```(?:python|toml)\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    pieces = [piece for block in shown for piece in block.split("\n...\n") if "[compute" not in piece]
    assert len(pieces) > 3
    assert [piece for piece in pieces if squeezed(piece) not in code] == []


def squeezed(text: str) -> str:
    """Leave out what a formatter decides."""
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())


def test_the_page_names_every_operation_and_capability() -> None:
    page = (ROOT / "docs" / "drivers.md").read_text()
    operations = {name for name in vars(Driver) if not name.startswith("_")}
    assert {name for name in operations if f"`{name}`" not in page} == set()
    assert {name for name in Capability if f"`{name}`" not in page} == set()
    assert operations <= set(dir(FakeDriver))
