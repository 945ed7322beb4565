"""What flavors and images ask of the inside of hosts, and which of it is refused, by key."""

from __future__ import annotations

import msgspec
import pytest

from skep.domain.errors import BadRequest
from skep.domain.flavors import Flavor
from skep.domain.ids import ProjectId, UserId
from skep.domain.nested.aliases import DeviceAlias, device_requests
from skep.domain.nested.reading import any_of, resources_of, wanted
from skep.domain.nested.wanted import DeviceMatch, GuestCell, PageKind
from skep.domain.request_specs import RequestSpec
from skep.placement.request import placement_request


def flavor(**specs: str) -> Flavor:
    keys = {key.replace("__", ":").replace("_DOT_", "."): value for key, value in specs.items()}
    return Flavor(flavorid="1", name="f", vcpus=4, memory_mb=4096, extra_specs=keys)


def test_a_plain_flavor_asks_for_nothing_inside() -> None:
    assert wanted(flavor(), {}) is None
    assert wanted(flavor(hw__cpu_policy="shared", quota__cpu_shares="2"), {"hw_disk_bus": "virtio"}) is None
    assert resources_of(flavor(), None) == {"VCPU": 4, "MEMORY_MB": 4096}


@pytest.mark.parametrize("specs", [{"hw__cpu_policy": "dedicated"}, {"hw__numa_nodes": "2"}])
def test_cpus_that_would_be_counted_one_by_one_are_not_too_many(specs: dict[str, str]) -> None:
    huge = msgspec.structs.replace(flavor(**specs), vcpus=2**31 - 2)
    with pytest.raises(BadRequest, match="vcpus"):
        wanted(huge, {})
    assert wanted(msgspec.structs.replace(huge, extra_specs={"a": "b"}), {"hw_disk_bus": "virtio"}) is None


@pytest.mark.parametrize("count", ["0", "1025", "00000000001025", "0000010249999999999", "1" * 5000])
def test_no_more_devices_than_can_be_counted(count: str) -> None:
    aliases = {"gpu": DeviceAlias(matches=(DeviceMatch(vendor_id="10de", product_id="1eb8"),))}
    with pytest.raises(BadRequest, match="alias"):
        device_requests({"pci_passthrough:alias": f"gpu:{count}"}, aliases)


def test_dedicated_cpus_are_counted_as_pcpu() -> None:
    asked = wanted(flavor(hw__cpu_policy="dedicated"), {})
    assert asked is not None
    assert asked.numa is not None
    assert asked.numa.cells == (GuestCell(shared=0, dedicated=4, memory_mb=4096),)
    assert resources_of(flavor(), asked) == {"PCPU": 4, "MEMORY_MB": 4096}


def test_an_emulator_by_itself_takes_one_more() -> None:
    asked = wanted(flavor(hw__cpu_policy="dedicated", hw__emulator_threads_policy="isolate"), {})
    assert resources_of(flavor(), asked)["PCPU"] == 5


@pytest.mark.parametrize("mask", ["1-2", "^0,^3"])
def test_mixed_cpus_are_pinned_by_mask(mask: str) -> None:
    asked = wanted(flavor(hw__cpu_policy="mixed", hw__cpu_dedicated_mask=mask), {})
    assert resources_of(flavor(), asked) == {"PCPU": 2, "VCPU": 2, "MEMORY_MB": 4096}


def test_pcpu_by_its_class_is_a_policy_too() -> None:
    specs = flavor(resources__PCPU="4")
    assert resources_of(specs, wanted(specs, {})) == {"PCPU": 4, "MEMORY_MB": 4096}


def test_unequal_cells() -> None:
    specs = {
        "hw__numa_nodes": "2",
        "hw__numa_cpus_DOT_0": "0-2",
        "hw__numa_mem_DOT_0": "3072",
        "hw__numa_cpus_DOT_1": "3",
        "hw__numa_mem_DOT_1": "1024",
    }
    asked = wanted(flavor(**specs), {})
    assert asked is not None
    assert asked.numa is not None
    assert [(cell.shared, cell.memory_mb) for cell in asked.numa.cells] == [(3, 3072), (1, 1024)]


@pytest.mark.parametrize(
    ("text", "page"),
    [("small", PageKind.SMALL), ("any", PageKind.ANY), ("2048", 2048), ("2MB", 2048), ("1GB", 1048576), ("4kB", 4)],
)
def test_page_sizes(text: str, page: int) -> None:
    asked = wanted(flavor(hw__mem_page_size=text), {})
    assert asked is not None
    assert asked.numa is not None
    assert asked.numa.page == page


def test_an_image_may_choose_the_page_size_where_the_flavor_leaves_it_open() -> None:
    asked = wanted(flavor(hw__mem_page_size="large"), {"hw_mem_page_size": "1GB"})
    assert asked is not None
    assert asked.numa is not None
    assert asked.numa.page == 1048576


def test_groups_by_number_and_by_name() -> None:
    specs = {
        "resources1__VGPU": "1",
        "trait1__CUSTOM_A": "required",
        "trait1__any_of": "CUSTOM_C,CUSTOM_B",
        "resources_NET__CUSTOM_NIC": "2",
        "trait_NET__CUSTOM_X": "forbidden",
        "group_policy": "isolate",
        "resources__CUSTOM_GOLD": "3",
    }
    asked = wanted(flavor(**specs), {})
    assert asked is not None
    assert asked.isolated
    first, second = asked.groups
    assert (first.name, first.resources, first.required) == ("1", (("VGPU", 1),), ("CUSTOM_A",))
    assert first.any_of == (("CUSTOM_B", "CUSTOM_C"),)
    assert (second.name, second.resources, second.forbidden) == ("_NET", (("CUSTOM_NIC", 2),), ("CUSTOM_X",))
    assert asked.loose == (("CUSTOM_GOLD", 3),)
    amounts = resources_of(flavor(**specs), asked)
    assert amounts == {"VCPU": 4, "MEMORY_MB": 4096, "VGPU": 1, "CUSTOM_NIC": 2, "CUSTOM_GOLD": 3}


def test_any_of_without_a_group_concerns_the_host() -> None:
    specs = {"trait:any_of": "CUSTOM_A,CUSTOM_B", "trait:any_of.second": "CUSTOM_C"}
    assert any_of(specs) == (("CUSTOM_A", "CUSTOM_B"), ("CUSTOM_C",))


@pytest.mark.parametrize(
    ("specs", "image", "key"),
    [
        ({"hw__cpu_policy": "some"}, {}, "hw:cpu_policy"),
        ({"hw__cpu_thread_policy": "require"}, {}, "hw:cpu_thread_policy"),
        ({"hw__emulator_threads_policy": "isolate"}, {}, "hw:emulator_threads_policy"),
        ({"hw__cpu_policy": "mixed"}, {}, "hw:cpu_policy"),
        ({"hw__cpu_policy": "mixed", "hw__cpu_dedicated_mask": "0-3"}, {}, "hw:cpu_dedicated_mask"),
        ({"hw__cpu_policy": "mixed", "hw__cpu_dedicated_mask": "7"}, {}, "hw:cpu_dedicated_mask"),
        ({"hw__cpu_dedicated_mask": "0"}, {}, "hw:cpu_dedicated_mask"),
        ({"hw__cpu_policy": "shared"}, {"hw_cpu_policy": "dedicated"}, "hw_cpu_policy"),
        ({"hw__cpu_policy": "mixed", "hw__cpu_dedicated_mask": "0"}, {"hw_cpu_policy": "dedicated"}, "hw_cpu_policy"),
        (
            {"hw__cpu_policy": "dedicated", "hw__cpu_thread_policy": "require"},
            {"hw_cpu_thread_policy": "isolate"},
            "hw_cpu_thread_policy",
        ),
        ({"resources__PCPU": "4", "hw__cpu_policy": "dedicated"}, {}, "resources:PCPU"),
        ({"resources__PCPU": "2"}, {}, "resources:PCPU"),
        ({"resources__VCPU": "4", "hw__cpu_policy": "dedicated"}, {}, "resources:VCPU"),
        ({"hw__numa_nodes": "0"}, {}, "hw:numa_nodes"),
        ({"hw__numa_nodes": "3"}, {}, "hw:numa_nodes"),
        ({"hw__numa_nodes": "2"}, {"hw_numa_nodes": "2"}, "hw_numa_nodes"),
        ({"hw__numa_nodes": "2", "hw__numa_cpus_DOT_0": "0-3"}, {}, "hw:numa_cpus"),
        ({"hw__numa_nodes": "2", "hw__numa_cpus_DOT_2": "0-3"}, {}, "hw:numa_cpus.2"),
        ({"hw__mem_page_size": "huge"}, {}, "hw:mem_page_size"),
        ({}, {"hw_mem_page_size": "large"}, "hw_mem_page_size"),
        ({"hw__mem_page_size": "small"}, {"hw_mem_page_size": "2048"}, "hw_mem_page_size"),
        ({"hw__pci_numa_affinity_policy": "near"}, {}, "hw:pci_numa_affinity_policy"),
        ({"resources1__VGPU": "many"}, {}, "resources1:VGPU"),
        ({"resources1__VGPU": "1", "trait1__CUSTOM_A": "wanted"}, {}, "trait1:CUSTOM_A"),
        ({"trait1__CUSTOM_A": "required"}, {}, "trait1"),
        ({"resources1__VGPU": "1", "group_policy": "apart"}, {}, "group_policy"),
        ({"resources__vgpu": "1"}, {}, "resources:vgpu"),
    ],
)
def test_what_cannot_be_is_refused_with_its_key(specs: dict[str, str], image: dict[str, str], key: str) -> None:
    kind = "image property" if key.startswith("hw_") else "extra spec"
    with pytest.raises(BadRequest, match=rf"^Invalid input for {kind} {key}.*\. Value: .*\. Expected: "):
        wanted(flavor(**specs), image)


def test_aliases() -> None:
    match = DeviceMatch(vendor_id="10de", product_id="1eb8")
    aliases = {"gpu": DeviceAlias(matches=(match,), affinity="required")}
    (asked,) = device_requests({"pci_passthrough:alias": "gpu:2"}, aliases)
    assert (asked.count, asked.affinity) == (2, "required")
    found = wanted(flavor(), {}, (asked,))
    assert found is not None
    assert found.resources() == {"CUSTOM_PCI_10DE_1EB8": 2}
    for bad in ("gpu", "gpu:0", "gpu:x", "tpu:1", ""):
        with pytest.raises(BadRequest, match=r"^Invalid input for extra spec pci_passthrough:alias\. Value: .*"):
            device_requests({"pci_passthrough:alias": bad}, aliases)


def test_a_group_policy_that_is_none_is_refused_without_groups_too() -> None:
    with pytest.raises(BadRequest, match=r"extra spec group_policy. Value: both. Expected: none or isolate"):
        wanted(flavor(group_policy="both"), {})
    assert placement_request(spec(flavor(group_policy="isolate"))).capabilities == ()


def spec(asked: Flavor) -> RequestSpec:
    return RequestSpec(project_id=ProjectId("p"), user_id=UserId("u"), flavor=asked)
