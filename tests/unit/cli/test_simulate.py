"""`skep simulate` on small made-up traces in each format."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from skep.cli.main import skep
from skep.cli.simulate import simulate
from skep.cli.simulated import INSTALL_CHARTS

DATA = Path(__file__).parents[1] / "simulator" / "data"
PNG = b"\x89PNG\r\n\x1a\n"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(simulate, [str(argument) for argument in arguments])


def figures(*arguments: object) -> list[dict[str, Any]]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    policies: list[dict[str, Any]] = json.loads(result.stdout)["policies"]
    return policies


@pytest.mark.parametrize("trace", ["huawei", "openb_pods", "azure"])
def test_a_trace_of_each_format_on_made_up_hosts(trace: str) -> None:
    (one,) = figures(DATA / f"{trace}.csv", "--hosts", 20, "--gpus", 4, "--cells", 2, "--zones", 3, "--samples", 10)
    assert (one["policy"], one["servers"], one["placed"], one["refused"]) == ("default", 60, 60, 0)
    assert len(one["samples"]) == 10
    assert 0 < one["mean_utilisation"]["VCPU"] < one["peak_utilisation"]["VCPU"] < 1


def test_two_policies_side_by_side_in_a_table(tmp_path: Path) -> None:
    policy = tmp_path / "mine.toml"
    policy.write_text('filters = ["ComputeFilter"]\n[weighers]\nRAMWeigher = -1.0\n')
    result = run(DATA / "huawei.csv", "--hosts", 3, "--vcpus", 8, "--policy", "default", "--against", policy)
    assert result.exit_code == 0
    header = next(line for line in result.stdout.splitlines() if "default" in line)
    assert header.split() == ["default", "mine"]
    assert "VCPU: mean fragmented" in result.stdout
    assert result.stderr == ""


def test_hosts_from_a_file_and_outages(tmp_path: Path) -> None:
    outages = tmp_path / "outages.csv"
    outages.write_text("host,from,until\n" + "".join(f"node-{number},0,\n" for number in range(6)))
    trace, nodes = DATA / "openb_pods.csv", DATA / "openb_nodes.csv"
    assert figures(trace, "--cloud-file", nodes)[0]["placed"] > 30
    (down,) = figures(trace, "--cloud-file", nodes, "--outages", outages, "--first", 10)
    assert (down["placed"], down["refused_by"]) == (0, {"being up and enabled": 10})


def test_a_configuration_is_a_policy(tmp_path: Path) -> None:
    file = tmp_path / "skep.toml"
    file.write_text("[scheduler]\ncpu_weight_multiplier = -1.0\nram_weight_multiplier = -1.0\n")
    ours, stack = figures(DATA / "huawei.csv", "--hosts", 6, "--policy", file, "--against", "stack")
    assert ours["policy"] == "skep"
    assert ours["least_empty_hosts"] == stack["least_empty_hosts"]


def test_charts_are_pictures(tmp_path: Path) -> None:
    result = run(DATA / "huawei.csv", "--hosts", 4, "--against", "stack", "--samples", 5, "--charts", tmp_path / "out")
    assert result.exit_code == 0, result.output
    files = sorted((tmp_path / "out").iterdir())
    assert [file.name for file in files] == ["empty-hosts.png", "failures.png", "fragmentation.png", "utilisation.png"]
    assert all(file.read_bytes().startswith(PNG) for file in files)


def test_where_charts_cannot_be_drawn_that_is_said_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    result = run(DATA / "huawei.csv", "--hosts", 4, "--charts", tmp_path)
    assert result.exit_code == 2
    assert INSTALL_CHARTS in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "expected either a TRACE"),
        ((DATA / "huawei.csv",), "expected hosts"),
        ((DATA / "huawei.csv", "--hosts", 2, "--live"), "expected one of"),
        ((DATA / "huawei.csv", "--hosts", 2, "--cloud-file", DATA / "azure.csv"), "expected one of"),
        ((DATA / "huawei.csv", "--cloud-file", DATA / "azure.csv"), "azure.csv, line 1"),
        ((DATA / "openb_nodes.csv", "--hosts", 2), "openb_nodes.csv, line 1"),
        (("--replay", DATA / "azure.csv"), "azure.csv"),
    ],
)
def test_what_cannot_be_done_is_said(arguments: tuple[object, ...], said: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert said in result.stderr


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("nonsense", "skep: there is no policy nonsense: expected default,"),
        ("nothing.toml", "skep: nothing.toml: No such file or directory"),
        ("[", "skep: {file}: "),
        ("colour = 1", "skep: mine: unknown key colour; there are filters,"),
        ("weighers = {RAM = 1.0}", "skep: policy mine: there is no weigher RAM; there are "),
        ("[scheduler]\ncolour = 1", "skep: scheduler.colour: unknown key"),
    ],
)
def test_a_policy_that_is_none_is_one_line_and_status_2(tmp_path: Path, policy: str, said: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(policy)
    name = file if " " in policy or "[" in policy else policy
    result = CliRunner().invoke(skep, ["simulate", str(DATA / "huawei.csv"), "--hosts", "2", "--policy", str(name)])
    assert result.exit_code == 2
    assert result.stderr.startswith(said.format(file=file))
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_a_directory_for_charts_that_cannot_be_made_is_said_first(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = run(DATA / "huawei.csv", "--hosts", 4, "--charts", tmp_path / "file" / "charts")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"skep: {tmp_path / 'file' / 'charts'}: Not a directory\n"


def test_an_outage_of_nobody_is_refused(tmp_path: Path) -> None:
    outages = tmp_path / "outages.csv"
    outages.write_text("host,from,until\nnobody,0,\n")
    result = run(DATA / "huawei.csv", "--hosts", 4, "--outages", outages)
    assert result.exit_code == 2
    assert "no host nobody" in result.stderr
