"""Which extra specs a flavor may have, checked since 2.86 (Nova's user guide, "Extra Specs").

A key without a known prefix is anybody's. Under a known prefix the key must be one of those below and the value must
be of its kind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import os_resource_classes
import os_traits

from skep.api.schemas.fields import FALSE_WORDS, TRUE_WORDS
from skep.domain.conditions import OPERATORS, amount
from skep.domain.errors import BadRequest
from skep.domain.extra_spec_operators import is_comparison

Check = Callable[[str], bool]


def _one_of(*words: str) -> Check:
    return lambda value: value in words


def _whole(least: int, most: int | None = None) -> Check:
    def check(value: str) -> bool:
        if not re.fullmatch(r"-?[0-9]{1,18}", value):
            return False
        return least <= int(value) and (most is None or int(value) <= most)

    return check


def _like(pattern: str) -> Check:
    return lambda value: re.fullmatch(pattern, value) is not None


def _yes_no(value: str) -> bool:
    return value in TRUE_WORDS or value in FALSE_WORDS or value.lower() in {"t", "f", "y", "n"}


def _text(_value: str) -> bool:
    return True


_CPUS = _like(r"\^?\d+(-\d+)?(,\^?\d+(-\d+)?)*")
_NAMED = r"[A-Z0-9_]+"
_LEVELS = _one_of("high", "normal", "low", "custom")

_KNOWN: tuple[tuple[str, Check], ...] = (
    (rf"resources[A-Za-z0-9_-]{{0,64}}:{_NAMED}", _whole(0)),
    (rf"trait[A-Za-z0-9_-]{{0,64}}:{_NAMED}", _one_of("required", "forbidden")),
    (r"trait[A-Za-z0-9_-]{0,64}:any_of(\.[a-z0-9_]{1,64})?", _like(rf"{_NAMED}(,{_NAMED})*")),
    ("group_policy", _one_of("isolate", "none")),
    ("accel:device_profile", _text),
    ("pci_passthrough:alias", _text),
    (r"capabilities:.+", is_comparison),
    (r"aggregate_instance_extra_specs:.+", is_comparison),
    ("os:secure_boot", _one_of("required", "disabled", "optional")),
    ("os:vm_mode", _text),
    ("hw:cpu_policy", _one_of("dedicated", "shared", "mixed")),
    ("hw:cpu_thread_policy", _one_of("prefer", "isolate", "require")),
    ("hw:cpu_realtime", _yes_no),
    ("hw:cpu_realtime_mask", _CPUS),
    ("hw:cpu_dedicated_mask", _CPUS),
    ("hw:emulator_threads_policy", _one_of("isolate", "share")),
    (r"hw:cpu_(max_)?(sockets|cores|threads)", _whole(1)),
    ("hw:numa_nodes", _whole(1)),
    (r"hw:numa_cpus\.\d+", _CPUS),
    (r"hw:numa_mem\.\d+", _whole(1)),
    ("hw:mem_page_size", _like(r"small|large|any|\d+([kKMG]?i?[bB]?)?")),
    ("hw:pci_numa_affinity_policy", _one_of("required", "preferred", "legacy", "socket")),
    ("hw:mem_encryption_model", _one_of("amd-sev", "amd-sev-es")),
    ("hw:tpm_model", _one_of("tpm-tis", "tpm-crb")),
    ("hw:tpm_version", _one_of("1.2", "2.0")),
    ("hw:tpm_secret_security", _one_of("user", "host", "deployment")),
    ("hw:serial_port_count", _whole(0)),
    ("hw:watchdog_action", _one_of("none", "pause", "poweroff", "reset", "disabled")),
    ("hw:viommu_model", _one_of("none", "auto", "intel", "smmuv3", "virtio")),
    ("hw:virtio_packed_ring", _yes_no),
    ("hw:sound_model", _text),
    ("hw:usb_model", _text),
    ("hw:redirected_usb_ports", _whole(0, 15)),
    ("hw:maxphysaddr_mode", _one_of("passthrough", "emulate")),
    ("hw:maxphysaddr_bits", _whole(0)),
    ("hw:pmem", _text),
    ("hw:ephemeral_encryption_format", _one_of("luks")),
    (
        r"hw:(boot_menu|hide_hypervisor_id|vif_multiqueue_enabled|pmu|mem_encryption|locked_memory|ephemeral_encryption)",
        _yes_no,
    ),
    ("hw_rng:allowed", _yes_no),
    (r"hw_rng:rate_(bytes|period)", _whole(0)),
    ("hw_video:ram_max_mb", _whole(0)),
    (r"quota:cpu_(shares|period|quota)", _whole(0)),
    (r"quota:(cpu|memory|disk_io|vif)_(limit|reservation|shares_share)", _whole(0)),
    (r"quota:(cpu|memory|disk_io|vif)_shares_level", _LEVELS),
    (r"quota:disk_(read|write|total)_(bytes|iops)_sec(_max)?(_length)?", _whole(0)),
    (r"quota:vif_(in|out)bound_(average|burst|peak)", _whole(0)),
    (r"spread:(host|rack|zone)", _like(r"([1-9][0-9]{0,5}|1000000)(:(hard|soft))?")),
    (r"vmware:(hw_version|storage_policy)", _text),
)
_CHECKS = tuple((re.compile(pattern), check) for pattern, check in _KNOWN)
_PREFIXES = frozenset({"accel", "pci_passthrough", "os", "hw", "hw_rng", "hw_video", "quota", "spread", "vmware"})
_GROUP_KEY = re.compile(r"(resources|trait)[A-Za-z0-9_-]{0,64}:(.+)")
_CUSTOM = re.compile(r"CUSTOM_[A-Z0-9_]{1,248}")
_CLASSES = frozenset(os_resource_classes.STANDARDS)
_TRAITS = frozenset(os_traits.get_traits())
_GROUPED = re.compile(r"(resources|trait)[A-Za-z0-9_-]{0,64}")


VOLUME = "volume:"
_VOLUME_FIELD = re.compile(r"volume:[a-z][a-z0-9_]{0,30}")


def check_extra_specs(specs: Mapping[str, str], *, volumes: bool = False) -> None:
    """Raise BadRequest naming the first key that is unknown under a known prefix, or whose value is of another kind.

    `volumes`: `volume:FIELD` is a condition that the volume filter reads; else the prefix is anybody's.
    """
    check_names(specs)
    for key, value in specs.items():
        if volumes and key.startswith(VOLUME):
            _check_volume(key, value)
            continue
        check = next((check for pattern, check in _CHECKS if pattern.fullmatch(key)), None)
        if check is not None:
            if not check(value):
                raise BadRequest(f"Validation failed; extra spec '{key}' has an invalid value '{value[:80]}'.")
        elif _is_ours(key):
            raise BadRequest(f"Validation failed; extra spec '{key}' does not appear to be a valid extra spec.")


def check_names(specs: Mapping[str, str]) -> None:
    """Raise BadRequest naming the first key with a resource class or a trait that neither is standard nor CUSTOM_."""
    for key, value in specs.items():
        found = _GROUP_KEY.fullmatch(key)
        if found is None:
            continue
        kind, name = found.groups()
        if kind == "resources":
            if name not in _CLASSES and not _CUSTOM.fullmatch(name):
                raise BadRequest(f"Validation failed; extra spec '{key[:300]}' names no resource class.")
            continue
        for trait in value.split(",") if name.startswith("any_of") else (name,):
            if trait not in _TRAITS and not _CUSTOM.fullmatch(trait):
                raise BadRequest(f"Validation failed; extra spec '{key[:300]}' names no trait {trait[:80]!r}.")


def _check_volume(key: str, value: str) -> None:
    if not _VOLUME_FIELD.fullmatch(key):
        raise BadRequest(f"Validation failed; extra spec '{key[:80]}' names no field of the namespace volume.")
    if amount(value) is None:
        raise BadRequest(
            f"Validation failed; extra spec '{key}' has an invalid value '{value[:80]}': "
            f"expected a number, after one of {OPERATORS}."
        )


def _is_ours(key: str) -> bool:
    prefix, colon, _ = key.partition(":")
    return bool(colon) and (prefix in _PREFIXES or _GROUPED.fullmatch(prefix) is not None)
