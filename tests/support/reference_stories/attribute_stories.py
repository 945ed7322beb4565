"""What hosts tell beside amounts, and what requests and operators ask of it, as strategies for hypothesis."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from skep.domain.guest_keys import KeyRule, RefusedKeys
from skep.domain.images import Image
from skep.domain.lifetimes import Lifetime
from skep.domain.providers import Allocation, Provider, ProviderShare, Topology
from skep.domain.resources import Inventory
from skep.placement.options import PlacementOptions

_DEVICES = ("0000:01:00.0", "0000:02:00.0", "0000:03:00.0")


def _inside(devices: int, held: int) -> dict[str, Any]:
    """Return what a host tells of so many devices, some of which its guests hold."""
    names = _DEVICES[:devices]
    pool = Provider(name="cards", inventory={"CUSTOM_CARD": Inventory(total=devices)}, devices=names)
    share = ProviderShare(provider="cards", resources={"CUSTOM_CARD": min(held, devices)}, devices=names[:held])
    return {"topology": Topology(providers=(pool,)), "taken": Allocation(providers=(share,))}


_facts = st.fixed_dictionaries(
    {
        "instances": st.integers(0, 3),
        "io_ops": st.integers(0, 3),
        "expected_end": st.sampled_from([None, 1_000, 2_500, 3_200, 6_000]),
    },
    optional={
        "hypervisor_type": st.sampled_from(["QEMU", "xen"]),
        "hypervisor_version": st.sampled_from([6_002_000, 8_000_001]),
        "host_ip": st.sampled_from(["10.0.0.7", "10.0.1.7", "fe80::1", "none"]),
        "cpu_info": st.sampled_from(
            [{"arch": "x86_64", "features": ["avx", "avx2"]}, {"arch": "aarch64"}, {"arch": "x86_64", "cores": 8}]
        ),
        "supported_instances": st.sampled_from(
            [(("x86_64", "qemu", "hvm"), ("i686", "qemu", "hvm")), (("x86_64", "xen", "xen"),)]
        ),
        "metrics": st.dictionaries(st.sampled_from(["cpu.percent", "disk"]), st.sampled_from([0.0, 0.25, 0.5])),
        "stats": st.sampled_from([{"colour": "red"}, {"colour": "blue", "card": '{"kind": "fast", "ports": 2}'}]),
        "refused_keys": st.sampled_from(
            [
                RefusedKeys(extra_specs=(KeyRule("hw:mem_*", ("small",)),)),
                RefusedKeys(
                    extra_specs=(KeyRule("hw:pmu", ("no",)),), properties=(KeyRule("hw_architecture", ("amd64",)),)
                ),
            ]
        ),
        "image_properties": st.dictionaries(
            st.sampled_from(["os_distro=debian", "os_distro=windows", "iso.kind=gold"]), st.integers(1, 3)
        ),
    },
)
told = st.builds(
    lambda facts, inside: {**facts, **inside},
    _facts,
    st.just({}) | st.builds(_inside, st.integers(1, 3), st.integers(0, 2)),
)
"""Further fields of a host's report."""


def some(values: dict[str, tuple[str, ...]], most: int) -> st.SearchStrategy[dict[str, str]]:
    """Return a few of the keys, each with one of its values: with many of them no host would be left."""
    pairs = [(key, value) for key, known in values.items() for value in known]
    return st.lists(st.sampled_from(pairs), min_size=1, max_size=most).map(dict)


EXTRA_SPECS = {
    "capabilities:cpu_info:features": ("<in> avx", "<all-in> avx avx2"),
    "capabilities:cpu_info:cores": (">= 4", "= 9", "8"),
    "capabilities:hypervisor_version": (">= 7000000", "6002000"),
    "capabilities:num_instances": ("<= 1", "0", "!= 2"),
    "capabilities:free_ram_mb": (">= 256", "s< 5"),
    "capabilities:metrics:cpu.percent": ("<= 0.3", "0.5"),
    "capabilities:card:ports": ("2",),
    "capabilities:failed_builds": ("0",),
    "colour": ("red", "<or> blue <or> green"),
    "hw:pmu": ("yes", "no"),
    "vcpus_used": ("<= 2",),
}
METADATA = {
    "filter_tenant_id": ("p", "q", "q, p", "other"),
    "filter_tenant_id_2": ("p",),
    "instance_type": ("small", "large, small", "huge"),
    "os_distro": ("debian", "debian, windows", "windows"),
    "iso.kind": ("gold", "dust"),
    "max_io_ops_per_host": ("1", "3", "some"),
    "max_instances_per_host": ("2", "4", "1.5"),
    "io_ops_weight_multiplier": ("-3", "0"),
    "best_fit_weight_multiplier": ("4", "x"),
    "pci_weight_multiplier": ("2",),
    "lifetime_weight_multiplier": ("-1", "4"),
    "image_props_weight_multiplier": ("-1.5",),
}
_PROPERTIES = {
    "os_distro": ("debian", "windows", ""),
    "iso.kind": ("gold", "dust"),
    "hw_architecture": ("x86_64", "amd64", "AArch64"),
    "img_hv_type": ("qemu", "xapi"),
    "vm_mode": ("hvm", "pv"),
    "img_hv_requested_version": (">=7.0", "<7, >=6", "new"),
}
images = st.builds(
    lambda number, properties: Image(id=number, properties=properties),
    st.sampled_from(["plain", "guarded"]),
    some(_PROPERTIES, 2),
)
_queries: list[list[Any]] = [
    [],
    ["=", "$cpu_info.arch", "x86_64"],
    ["in", "$host_ip", "10.0.0.7", "fe80::1"],
    ["not", ["=", "$hypervisor_type", "QEMU"], [">=", "$num_io_ops", 1]],
    ["or", [">=", "$free_ram_mb", 300, 400], ["<", "$metrics.cpu.percent", 0.5]],
    ["and", ["<=", "$num_instances", 2], ["not", ["<", "$stats.colour", 5]], ["=", "$vcpus_total", 4, "$vcpus_total"]],
    [">", "$total_usable_ram_mb", "$free_disk_mb"],
    ["=", "$uuid", "n1"],
]
LIFETIMES = tuple(Lifetime(begin, begin + length) for begin in (0, 2_000) for length in (500, 3_000))
hints = st.sampled_from(
    [
        *({"query": query} for query in _queries),
        *({"query": json.dumps(query)} for query in _queries),
        {"build_near_host_ip": "10.0.0.1"},
        {"build_near_host_ip": "10.0.0.1", "cidr": "/23"},
        {"build_near_host_ip": "fe80::", "cidr": "/64"},
    ]
)
options = st.builds(
    PlacementOptions,
    max_io_ops_per_host=st.sampled_from([8, 2]),
    max_instances_per_host=st.sampled_from([50, 4]),
    isolated_images=st.sampled_from([(), ("guarded",)]),
    isolated_hosts=st.sampled_from([(), ("host-1", "host-4")]),
    restrict_isolated_hosts_to_isolated_images=st.booleans(),
    aggregate_image_properties_isolation_namespace=st.sampled_from([None, "iso"]),
    image_properties_default_architecture=st.sampled_from([None, None, None, None, None, "amd64"]),
    image_props_weight_setting=st.sampled_from([{}, {"os_distro": 2.0, "iso.kind": 0.5}]),
    metrics_weight_setting=st.sampled_from([{}, {"disk": 1.0}, {"cpu.percent": -2.0, "disk": 0.0}]),
    metrics_required=st.sampled_from([False, False, False, False, True]),
    metrics_weight_of_unavailable=st.sampled_from([-10000.0, 0.5]),
)
