"""Filters and weighers of other packages: found by entry point, named when broken, held to account when they fail."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from skep.domain.errors import Misconfigured
from skep.placement.choice import Choice, NoHost
from skep.placement.request import placement_request
from skep.placement.settings import DEFAULT_FILTERS, DEFAULT_WEIGHERS
from tests.support.installing import install

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "placement_plugins"

BROKEN = """
from dataclasses import replace

import numpy as np
from skep.placement.plugins import column_filter, column_weigher, host_filter, host_weigher

@host_filter(stage="broken")
def raising(host, request):
    return 1 // 0

@host_filter(stage="leaving")
def leaving(host, request):
    raise SystemExit(1)

@column_filter(stage="short", per_request=False)
def short(hosts, request):
    return hosts.all()[:-1]

@host_filter(stage="moody")
def moody(host, request):
    if host.failed_builds:
        raise ValueError("not in the mood")
    return True

@host_weigher()
def nan(host, request):
    return float("nan")

@column_weigher(applies=lambda request: request.nothing)
def odd(hosts, request):
    return np.zeros(len(hosts))

@host_filter(stage="small", per_request=False)
def small(host, request):
    return host.capacity("VCPU") < 20 and host.free("VCPU") > 0

@host_weigher()
def by_name(host, request):
    return float(host.name[1:])

@column_filter(stage="promising", per_request=False)
def promising(hosts, request):
    if type(hosts).__name__ == "SupposedHosts":
        raise ValueError("not those")
    return hosts.all()

promising = replace(promising, foreseeable=True)
text = "no filter"
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in ("placement_plugins", "broken_plugins"):
        sys.modules.pop(name, None)


def install_example(site: Path, source: Path) -> None:
    project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
    install(site, "placement_plugins", project["entry-points"])
    site.joinpath("placement_plugins.py").write_text((source / "placement_plugins.py").read_text())


@pytest.fixture
def example(site: Path) -> None:
    install_example(site, EXAMPLE)


@pytest.fixture
def broken(site: Path) -> None:
    filters = {
        name: f"broken_plugins:{name}"
        for name in ("raising", "leaving", "short", "small", "promising", "text", "missing", "moody")
    }
    filters["absent"] = "broken_nowhere:absent"
    weighers = {name: f"broken_plugins:{name}" for name in ("nan", "odd", "by_name", "small")}
    install(site, "broken_plugins", {"skep.filters": filters, "skep.weighers": weighers})
    site.joinpath("broken_plugins.py").write_text(BROKEN)


def filters(*names: str) -> dict[str, Any]:
    return {"filters": (*DEFAULT_FILTERS, *names)}


def weighers(**multipliers: float) -> dict[str, Any]:
    return {"weighers": {**DEFAULT_WEIGHERS, **multipliers}}


@pytest.mark.usefixtures("example")
def test_the_example_filters_and_weighs(
    make_world: Callable[..., Any], spec: Callable[..., Any], flavor: Callable[..., Any]
) -> None:
    check_the_example(make_world(**filters("LicenceFilter"), **weighers(QuietWeigher=5.0)), spec, flavor)


def check_the_example(world: Any, spec: Callable[..., Any], flavor: Callable[..., Any]) -> None:
    for name, servers in (("h1", 3), ("h2", 1), ("h3", 0)):
        world.host(name, servers=servers)
    world.table.set_aggregate(1, ["h1", "h2"], {"licences": "sql windows"})
    licensed = spec(flavor=flavor(**{"licence:name": "windows"}))
    assert world.fitting() == {"h1", "h2", "h3"}
    assert world.fitting(licensed) == {"h1", "h2"}
    assert world.choose(licensed).host == "h2"
    assert world.choose().host == "h3"
    assert "0 left by licences" in world.why(spec(flavor=flavor(**{"licence:name": "oracle"})))


def test_the_page_shows_what_the_example_does() -> None:
    page = (ROOT / "docs" / "plugins.md").read_text()
    code = (EXAMPLE / "placement_plugins.py").read_text() + (EXAMPLE / "pyproject.toml").read_text()
    shown = re.findall(r"^   ```(?:python|toml)\n(.*?)^   ```", page, re.MULTILINE | re.DOTALL)
    lines = {line.strip() for block in shown for line in block.splitlines() if line.strip()}
    told = {line for line in lines if "import" not in line and "enabled_" not in line and line != "[scheduler]"}
    assert told <= {line.strip() for line in code.splitlines()}


@pytest.mark.usefixtures("broken")
@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (filters("Unheard"), "there is no filter Unheard"),
        (filters("absent"), "entry point absent of the group skep.filters cannot be used: ModuleNotFoundError"),
        (filters("missing"), "entry point missing of the group skep.filters cannot be used: AttributeError"),
        (filters("text"), "entry point text of the group skep.filters cannot be used: it is str, no Filter"),
        (weighers(small=1.0), "entry point small of the group skep.weighers cannot be used: it is Filter, no Weigher"),
    ],
)
def test_a_broken_one_is_named_at_start(make_world: Callable[..., Any], settings: dict[str, Any], why: str) -> None:
    with pytest.raises(Misconfigured, match=re.escape(why)):
        make_world(**settings)


@pytest.mark.usefixtures("example")
def test_a_name_of_two_packages_is_refused(make_world: Callable[..., Any], site: Path) -> None:
    install(site, "other", {"skep.filters": {"LicenceFilter": "other:licences"}})
    with pytest.raises(Misconfigured, match=r"LicenceFilter is the name of a filter in .* and in "):
        make_world(**filters("LicenceFilter"))


@pytest.mark.usefixtures("broken")
@pytest.mark.parametrize(
    ("settings", "kind", "name", "error"),
    [
        (filters("raising"), "filter", "raising", "ZeroDivisionError"),
        (filters("leaving"), "filter", "leaving", "SystemExit"),
        (filters("short"), "filter", "short", "ValueError"),
        (weighers(nan=1.0), "weigher", "nan", "ValueError"),
        (weighers(odd=1.0), "weigher", "odd", "AttributeError"),
    ],
)
def test_one_that_fails_fails_the_request_by_name_or_is_skipped(
    make_world: Callable[..., Any], settings: dict[str, Any], kind: str, name: str, error: str
) -> None:
    failures: list[str] = []
    for on_error in ("fail", "skip"):
        world = make_world(**settings, on_plugin_error=on_error)
        world.placement.guard.on_failure = lambda name, _: failures.append(name)
        world.host("h1")
        world.host("h2")
        chosen = world.choose()
        if on_error == "fail":
            assert isinstance(chosen, NoHost)
            assert chosen.reason == f"the {kind} {name}, a plug-in, failed ({error})"
            assert chosen.explanation.considered == 2
        else:
            assert isinstance(chosen, Choice)
    assert set(failures) == {name}


@pytest.mark.usefixtures("broken")
@pytest.mark.parametrize(("name", "words"), [("raising", "broken"), ("short", "short")])
def test_a_filter_that_failed_is_said_to_be_left_aside(
    make_world: Callable[..., Any], spec: Callable[..., Any], name: str, words: str
) -> None:
    world = make_world(**filters(name), on_plugin_error="skip")
    for host in ("h1", "h2"):
        world.host(host)
        stages = [(stage.stage, stage.left) for stage in world.choose(spec()).explanation.stages]
        assert (f"{words}, which failed and was left aside", int(host[1:])) in stages


@pytest.mark.usefixtures("broken")
def test_a_filter_that_answers_again_is_not_left_aside(
    make_world: Callable[..., Any], spec: Callable[..., Any]
) -> None:
    world = make_world(**filters("moody"), on_plugin_error="skip")
    world.host("h1", failed_builds=1)
    assert "1 left by moody, which failed and was left aside" in world.choose(spec()).explanation.summary()
    world.host("h1")
    assert world.choose(spec()).explanation.summary() == "1 host considered; 1 left by moody"


@pytest.mark.usefixtures("broken")
def test_nobody_is_decided_for_together_with_others_where_a_plugin_has_a_say(
    make_world: Callable[..., Any], spec: Callable[..., Any]
) -> None:
    for names, together in (((), 10), (("promising",), 0)):
        world = make_world(**filters(*names))
        world.host("h1", vcpus=64)
        chosen = world.placement.choose_together(placement_request(spec()), 10, salt=0)
        assert len(chosen) == together
        assert isinstance(world.choose(), Choice)


@pytest.mark.usefixtures("broken")
def test_hosts_are_judged_one_by_one_and_again_when_they_change(make_world: Callable[..., Any]) -> None:
    world = make_world(**filters("small"), **weighers(by_name=10.0))
    world.host("h1")
    world.host("h2", vcpus=5)  # times the ratio of 4: too large
    world.host("h3")
    assert world.fitting() == {"h1", "h3"}
    assert world.choose().host == "h3"
    world.host("h3", used={"VCPU": 16})
    world.host("h2", vcpus=4)
    assert world.fitting() == {"h1", "h2"}
    assert world.choose().host == "h2"
