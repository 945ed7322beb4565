"""Every pattern of extra specs takes what it is for and refuses what it is not for."""

from __future__ import annotations

import re

import pytest

from skep.api.extra_specs import KNOWN, check_extra_specs
from skep.domain.errors import BadRequest

BOOLEANS = (("true", "False", "1", "off", "yes"), ("2", "", "maybe"))
COUNTS = (("0", "1", "16"), ("-1", "1.5", "", "many", "1" * 19))
NUMBERS = (("1", "16"), ("0", "-1", "1.5", ""))
ANY_NUMBERS = (("-1", "0", "100"), ("1.5", "", "many"))
CPUS = (("0", "0-3", "0-3,^2,7"), ("a", "0-", "", "1,,2"))
TEXTS: tuple[tuple[str, ...], tuple[str, ...]] = (("anything", ""), ())
LEVELS = (("low", "normal", "high", "custom"), ("highest", ""))

CASES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "resources:VCPU": COUNTS,
    "resources_NET1:CUSTOM_GPU": COUNTS,
    "trait:HW_CPU_X86_AVX": (("required", "forbidden"), ("preferred", "")),
    "trait1:CUSTOM_GOLD": (("required", "forbidden"), ("true",)),
    "trait:any_of": (("HW_CPU_X86_AVX,CUSTOM_GOLD",), ("NO_SUCH_TRAIT", "", "CUSTOM_A CUSTOM_B")),
    "group_policy": (("isolate", "none"), ("shared", "")),
    "accel:device_profile": TEXTS,
    "pci_passthrough:alias": (("gpu:1", "gpu:1,nic:2", "a b:1 , c:22"), ("gpu", "gpu:", ":1", "gpu:one", "")),
    "capabilities:hypervisor_type": (("QEMU", "s== QEMU", "<in> Q"), ("<or>",)),
    "aggregate_instance_extra_specs:ssd": (("true", ">= 5"), (">= five",)),
    "os:secure_boot": (("required", "disabled"), ("optional", "")),
    "hide_hypervisor_id": BOOLEANS,
    "hw:cpu_policy": (("dedicated", "shared", "mixed"), ("pinned", "")),
    "hw:cpu_thread_policy": (("prefer", "isolate", "require"), ("share", "")),
    "hw:cpu_realtime": BOOLEANS,
    "hw:cpu_realtime_mask": CPUS,
    "hw:cpu_dedicated_mask": CPUS,
    "hw:emulator_threads_policy": (("isolate", "share"), ("shared", "")),
    "hw:cpu_sockets": NUMBERS,
    "hw:cpu_max_threads": NUMBERS,
    "hw:numa_nodes": NUMBERS,
    "hw:numa_cpus.0": CPUS,
    "hw:numa_mem.1": NUMBERS,
    "hw:mem_page_size": (("small", "large", "any", "2048", "2MB", "1GiB"), ("huge", "", "MB")),
    "hw:pci_numa_affinity_policy": (("required", "preferred", "legacy", "socket"), ("strict", "")),
    "hw:mem_encryption_model": (("amd-sev", "amd-sev-es"), ("intel-tdx", "")),
    "hw:tpm_model": (("tpm-tis", "tpm-crb"), ("tpm-spapr", "")),
    "hw:tpm_version": (("1.2", "2.0"), ("2", "")),
    "hw:tpm_secret_security": (("user", "host", "deployment"), ("project", "")),
    "hw:serial_port_count": COUNTS,
    "hw:watchdog_action": (("none", "pause", "poweroff", "reset", "disabled"), ("panic", "")),
    "hw:viommu_model": (("auto", "intel", "smmuv3", "virtio"), ("none", "amd")),
    "hw:virtio_packed_ring": BOOLEANS,
    "hw:sound_model": (("sb16", "ich9", "virtio"), ("none", "loud")),
    "hw:usb_model": (("none", "nec-xhci", "qemu-xhci"), ("ehci", "")),
    "hw:redirected_usb_ports": (("0", "15"), ("16", "-1", "")),
    "hw:pmem": (("small", "small,LARGE_2,"), ("", "1 GB", "a-b")),
    "hw:ephemeral_encryption_format": (("luks",), ("plain", "")),
    "hw:boot_menu": BOOLEANS,
    "hw:locked_memory": BOOLEANS,
    "hw:mem_encryption": BOOLEANS,
    "hw_rng:allowed": BOOLEANS,
    "hw_rng:rate_bytes": COUNTS,
    "hw_video:ram_max_mb": COUNTS,
    "quota:cpu_shares": COUNTS,
    "quota:cpu_quota": ANY_NUMBERS,
    "quota:memory_limit": ANY_NUMBERS,
    "quota:vif_reservation": ANY_NUMBERS,
    "quota:disk_io_shares_level": LEVELS,
    "quota:disk_total_iops_sec": COUNTS,
    "quota:vif_outbound_burst": COUNTS,
    "spread:rack": (("1", "2:soft", "1000000:hard"), ("0", "1000001", "1:firm")),
    "vmware:hw_version": TEXTS,
    "vmware:storage_policy": TEXTS,
}
"""Key -> values that are taken, values that are refused."""

UNKNOWN = (
    *("hw:numa_node", "hw:numa_cpus.x", "hw:numa_mem.", "quota:disk_read_bytes_sec_max", "quota:cpu", "os:vm_mode"),
    *("resources:custom_gpu", "resources:NO_SUCH_CLASS", "trait:no_such_trait", "vmware:x", "hw_rng:rate", "accel:x"),
    *("capabilities:", "aggregate_instance_extra_specs:", "spread:room"),
)


@pytest.mark.parametrize("key", CASES)
def test_values(key: str) -> None:
    taken, refused = CASES[key]
    for value in taken:
        check_extra_specs({key: value})
    for value in refused:
        with pytest.raises(BadRequest, match=re.escape(key)):
            check_extra_specs({key: value})


def test_each_pattern_has_its_cases() -> None:
    for pattern, kind in KNOWN:
        keys = [key for key in CASES if re.fullmatch(pattern, key)]
        assert keys, f"no case of {pattern}"
        assert all(CASES[key][1] for key in keys) or kind.expected == "a text", f"nothing is refused of {pattern}"


@pytest.mark.parametrize("key", UNKNOWN)
def test_unknown_keys_under_known_prefixes(key: str) -> None:
    with pytest.raises(BadRequest, match=re.escape(key)):
        check_extra_specs({key: "1"})


@pytest.mark.parametrize("key", ["ours", "ours:anything", "volume:free", "a:b:c"])
def test_keys_of_others_are_let_be(key: str) -> None:
    check_extra_specs({key: "whatever"})
