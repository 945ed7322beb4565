"""Extra specs that ask for attributes of the host."""

from __future__ import annotations

from typing import Any

import pytest

from skep.domain.claims import Claim
from skep.domain.ids import InstanceUuid

CPU = {
    "arch": "x86_64",
    "model": "Skylake",
    "features": ["avx", "avx2", "sse4.2"],
    "topology": {"cores": 8, "threads": 2, "sockets": 1},
}
OLD = {
    "arch": "x86_64",
    "model": "Nehalem",
    "features": ["sse4.2"],
    "topology": {"cores": 4, "threads": 1, "sockets": 2},
}


def cloud(world: Any) -> Any:
    world.host(
        "new",
        cpu_info=CPU,
        hypervisor_type="QEMU",
        hypervisor_version=8002000,
        stats={"rack_power": "12", "secure": "True"},
        host_ip="10.0.0.1",
    )
    world.host("old", cpu_info=OLD, hypervisor_type="QEMU", hypervisor_version=2006003, vcpus=2)
    world.host("mute")
    return world


@pytest.mark.parametrize(
    ("key", "wanted", "left"),
    [
        ("capabilities:hypervisor_type", "QEMU", {"new", "old"}),
        ("capabilities:hypervisor_type", "s== QEMU", {"new", "old"}),
        ("capabilities:hypervisor_type", "s!= QEMU", {"mute"}),
        ("capabilities:hypervisor_type", "<or> xen <or> QEMU", {"new", "old"}),
        ("capabilities:hypervisor_version", ">= 3000000", {"new"}),
        ("capabilities:hypervisor_version", "<= 3000000", {"old", "mute"}),
        ("capabilities:hypervisor_version", "= 8002000", {"new"}),
        ("capabilities:cpu_info:model", "Skylake", {"new"}),
        ("capabilities:cpu_info:topology:cores", "== 4", {"old"}),
        ("capabilities:cpu_info:topology:cores", "> 4", set()),
        ("capabilities:cpu_info:features", "<in> avx", {"new"}),
        ("capabilities:cpu_info:features", "<in> av", set()),
        ("capabilities:cpu_info:features", "<all-in> avx sse4.2", {"new"}),
        ("capabilities:cpu_info:features", "<all-in> sse4.2", {"new", "old"}),
        ("capabilities:cpu_info:nothing", "x", set()),
        ("capabilities:cpu_info:model:deeper", "x", set()),
        ("capabilities:stats:rack_power", ">= 10", {"new"}),
        ("capabilities:rack_power", ">= 10", {"new"}),
        ("capabilities:nothing", "x", set()),
        ("capabilities:host", "old", {"old"}),
        ("capabilities:uuid", "node-new", {"new"}),
        ("capabilities:host_ip", "<in> 10.0.", {"new"}),
        ("capabilities:vcpus_total", ">= 4", {"new", "mute"}),
        ("capabilities:cpu_allocation_ratio", "== 4.0", {"new", "old", "mute"}),
        ("capabilities:total_usable_ram_mb", "8192", {"new", "old", "mute"}),
        ("hypervisor_type", "QEMU", {"new", "old"}),
        ("secure", "True", {"new", "old", "mute"}),
        ("secure", "False", {"old", "mute"}),
        ("nobodys", "x", {"new", "old", "mute"}),
        ("other:hypervisor_type", "xen", {"new", "old", "mute"}),
    ],
)
def test_attributes(world: Any, spec: Any, flavor: Any, key: str, wanted: str, left: set[str]) -> None:
    assert cloud(world).fitting(spec(flavor=flavor(**{key: wanted}))) == left


def test_all_of_them_must_hold(world: Any, spec: Any, flavor: Any) -> None:
    cloud(world)
    both = {"capabilities:hypervisor_type": "QEMU", "capabilities:cpu_info:features": "<in> avx"}
    assert world.fitting(spec(flavor=flavor(**both))) == {"new"}


def test_users_read_what_their_flavor_asked(world: Any, spec: Any, flavor: Any) -> None:
    cloud(world)
    wanted = spec(flavor=flavor(**{"capabilities:cpu_info:arch": "aarch64"}))
    assert world.why(wanted) == "3 hosts considered; 0 left by capabilities (cpu_info:arch aarch64)"


@pytest.mark.parametrize(
    ("key", "before", "after"),
    [
        ("capabilities:free_ram_mb", ">= 7680", ">= 7000"),
        ("capabilities:vcpus_used", "== 0", "== 2"),
        ("capabilities:num_instances", "<= 0", "== 1"),
        ("capabilities:num_io_ops", "<= 0", "== 1"),
        ("capabilities:free_disk_mb", "== 102400", "== 101376"),
        ("capabilities:disk_mb_used", "== 0", "== 1024"),
    ],
)
def test_amounts_follow_claims(world: Any, spec: Any, flavor: Any, key: str, before: str, after: str) -> None:
    node = world.host("a")
    assert world.fitting(spec(flavor=flavor(**{key: before}))) == {"a"}
    claimed = {"MEMORY_MB": 680, "VCPU": 2, "DISK_GB": 1}
    world.claims.assume(Claim(instance=InstanceUuid("i"), attempt=1, node=node, resources=claimed))
    assert world.fitting(spec(flavor=flavor(**{key: before}))) == set()
    assert world.fitting(spec(flavor=flavor(**{key: after}))) == {"a"}


def test_a_report_with_other_facts_counts(world: Any, spec: Any, flavor: Any, usage: Any) -> None:
    cloud(world)
    wanted = spec(flavor=flavor(**{"capabilities:cpu_info:features": "<in> avx"}))
    assert world.fitting(wanted) == {"new"}
    world.table.set_report("node-mute", "cell-1", usage("mute", cpu_info=CPU))
    world.table.set_report("node-new", "cell-1", usage("new", cpu_info=OLD))
    assert world.fitting(wanted) == {"mute"}


def test_json_in_what_a_driver_says_may_hold_lists(world: Any, spec: Any, flavor: Any) -> None:
    world.host("a", stats={"pools": '{"fast": [1, 2]}', "deep": "[" * 255})
    world.host("b", stats={"pools": '{"fast": {"x": 1}}'})
    world.host("c", stats={"pools": "1"})

    def left(**specs: str) -> set[str]:
        keys = {f"capabilities:{key.replace('__', ':')}": value for key, value in specs.items()}
        return set(world.fitting(spec(flavor=flavor(**keys))))

    assert left(pools__fast="<in> 2") == {"a"}
    assert left(pools__fast__x="1") == {"b"}
    assert left(deep__x="1") == set()
