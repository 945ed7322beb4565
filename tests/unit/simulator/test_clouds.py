"""Made-up hosts, and those of files."""

from __future__ import annotations

from pathlib import Path

import pytest

from skep.simulator.clouds import HostKind, MadeUp, made_up, read, scaled
from skep.simulator.traces.rows import BadTrace


def test_hosts_are_spread_over_cells_and_zones() -> None:
    kind = HostKind(count=4, vcpus=8, memory_gib=16, disk_gib=100, gpus=2, cpu_allocation_ratio=2.0)
    plan = made_up(MadeUp(hosts=(kind,), cells=2, zones=2))
    assert [host.cell for host in plan.hosts] == ["cell-1", "cell-1", "cell-2", "cell-2"]
    assert [host.zone for host in plan.hosts] == ["zone-1", "zone-2", "zone-1", "zone-2"]
    inventory = plan.hosts[0].usage.inventory
    assert {name: one.capacity for name, one in inventory.items()} == {
        "VCPU": 16,
        "MEMORY_MB": 16384,
        "DISK_GB": 100,
        "CUSTOM_GPU_MILLI": 2000,
    }


def test_each_gpu_is_a_provider_of_its_own() -> None:
    plan = made_up(MadeUp(hosts=(HostKind(count=1, vcpus=8, memory_gib=16, gpus=2),)))
    topology = plan.hosts[0].usage.topology
    assert topology is not None
    assert [(one.name, one.inventory["CUSTOM_GPU_MILLI"].total) for one in topology.providers] == [
        ("gpu-0", 1000),
        ("gpu-1", 1000),
    ]


def test_amounts_may_be_counted_in_parts() -> None:
    plan = made_up(MadeUp(hosts=(HostKind(count=1, vcpus=8, memory_gib=16),)))
    parts = scaled(plan.hosts[0].usage, {"VCPU": 1000})
    assert (parts.inventory["VCPU"].total, parts.inventory["MEMORY_MB"].total) == (8000, 16384)


def test_a_file_describes_a_cloud(tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text(
        "cells = 1\nzones = 1\n"
        '[[hosts]]\ncount = 2\nvcpus = 4\nmemory_gib = 8\ntraits = ["CUSTOM_FAST"]\n'
        '[[hosts]]\ncount = 1\nname = "big"\nvcpus = 64\nmemory_gib = 512\ncell = "other"\nzone = "far"\n'
    )
    plan = read(path)
    assert [(host.usage.host, host.cell, host.zone) for host in plan.hosts] == [
        ("host-000000", "cell-1", "zone-1"),
        ("host-000001", "cell-1", "zone-1"),
        ("big-000002", "other", "far"),
    ]
    assert plan.hosts[0].usage.traits == ("CUSTOM_FAST",)


def test_a_line_for_each_host(tmp_path: Path) -> None:
    path = tmp_path / "hosts.csv"
    path.write_text("host,vcpus,memory_mb,disk_gb,zone,gpus\na,4,8192,0,east,0\nb,8,8192,10,,3\n")
    first, second = read(path).hosts
    assert (first.usage.host, first.zone, sorted(first.usage.inventory)) == ("a", "east", ["MEMORY_MB", "VCPU"])
    assert (second.zone, second.usage.inventory["DISK_GB"].total) == ("nova", 10)
    assert second.usage.inventory["CUSTOM_GPU_MILLI"].total == 3000
    assert first.usage.topology is None
    path.write_text("sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,P100\n")
    (node,) = read(path).hosts
    assert node.usage.traits == ("CUSTOM_GPU_P100",)
    assert node.usage.inventory["CUSTOM_GPU_MILLI"].total == 2000


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("x.toml", "[[hosts]]\ncount = 0\nvcpus = 1\nmemory_gib = 1\n", "count"),
        ("x.toml", "hosts = 3\n", "hosts"),
        ("x.toml", "[[hosts]\n", "x.toml"),
        ("x.toml", "[[hosts]]\ncount=1\nvcpus=1\nmemory_gib=1\ncolour=1\n", "colour"),
        ("x.csv", "host,vcpus\na,1\n", "line 1: expected the columns"),
        ("x.csv", "host,vcpus,memory_mb,disk_gb\n", "at least one host"),
        ("x.csv", "host,vcpus,memory_mb,disk_gb\na,1,1,0\na,1,1,0\n", "each host name once"),
        ("x.csv", "sn,cpu_milli,memory_mib,gpu,model\nn0,1000,1,2000,\n", "line 2, column gpu: expected at most 1024"),
        ("x.csv", "sn,cpu_milli,memory_mib,gpu,model\nn0,500,1,0,\n", "line 2, column cpu_milli: expected whole cores"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, name: str, text: str, said: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(BadTrace, match=said):
        read(path)
