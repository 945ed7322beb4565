"""Drivers are found by entry point, Skep's own too; what is wrong is said by name."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skep.compute.drivers.fake import FakeDriver
from skep.compute.drivers.registry import GROUP, DriverSetup, make_driver
from skep.config.compute import ComputeSettings, FakeDriverSettings
from skep.domain.clock import Clock
from skep.domain.errors import Misconfigured
from tests.support.installing import install

CODE = """
import msgspec

class Options(msgspec.Struct):
    command: str = "sleep"
    seconds: int = 1

def make(setup):
    return setup.options(Options)

def raising(setup):
    raise OSError("no hypervisor")

text = "no driver"
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(tmp_path)
    tmp_path.joinpath("other_drivers.py").write_text(CODE)
    names = ("make", "raising", "text", "missing")
    drivers = {name: f"other_drivers:{name}" for name in names}
    install(tmp_path, "other_drivers", {GROUP: {**drivers, "absent": "nowhere:make"}})
    yield tmp_path
    sys.modules.pop("other_drivers", None)


def made(tmp_path: Path, driver: str, **more: Any) -> Any:
    section = ComputeSettings(driver=driver, **more)
    return make_driver(DriverSetup(host="host-1", directory=tmp_path, clock=Clock(), section=section))


async def test_the_fake_driver_is_one_of_them(tmp_path: Path) -> None:
    driver = made(tmp_path, "fake", fake=FakeDriverSettings(vcpus=7))
    assert isinstance(driver, FakeDriver)
    assert (await driver.facts()).inventory["VCPU"].total == 7
    driver.close()


def test_the_fake_driver_takes_no_options(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"driver_options\.vcpus: unknown key, the driver has no options"):
        made(tmp_path, "fake", driver_options={"vcpus": 3})


@pytest.mark.usefixtures("site")
def test_options_are_read_as_the_driver_says(tmp_path: Path) -> None:
    options = made(tmp_path, "make", driver_options={"seconds": 3})
    assert (options.command, options.seconds) == ("sleep", 3)


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"second": 3}, "compute.driver_options.second: unknown key, expected one of command, seconds"),
        ({"seconds": "x"}, "compute.driver_options.seconds: expected int, got str"),
    ],
)
def test_wrong_options_are_named(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(Misconfigured) as raised:
        made(tmp_path, "make", driver_options=options)
    assert said in str(raised.value)


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("libvrt", "there is no driver libvrt; there are absent, fake, libvirt, make, missing, raising, text"),
        ("absent", "entry point absent of the group skep.drivers cannot be used: ModuleNotFoundError"),
        ("missing", "entry point missing of the group skep.drivers cannot be used: AttributeError"),
        ("raising", "entry point raising of the group skep.drivers cannot be used: OSError: no hypervisor"),
        ("text", "entry point text of the group skep.drivers cannot be used: it is str, no function"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(Misconfigured) as raised:
        made(tmp_path, name)
    assert said in str(raised.value)


def test_two_packages_that_bring_one_name_are_named(tmp_path: Path, site: Path) -> None:
    install(site, "third", {GROUP: {"make": "third:make"}})
    with pytest.raises(Misconfigured, match=r"make is the name of a driver in .*third \(third:make\)"):
        made(tmp_path, "make")
