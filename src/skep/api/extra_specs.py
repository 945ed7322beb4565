"""Which extra specs a flavor may have, checked since 2.86 (Nova's user guide, "Extra Specs").

A key without a known prefix is anybody's. Under a known prefix the key must be one of those below and the value must
be of its kind.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

import os_resource_classes
import os_traits

from skep.api.schemas.fields import FALSE_WORDS, TRUE_WORDS
from skep.domain.conditions import OPERATORS as OPERATORS_OF_AMOUNTS
from skep.domain.conditions import amount
from skep.domain.extra_spec_operators import OPERATORS, is_comparison
from skep.domain.invalid_input import invalid_property


class ValueKind(NamedTuple):
    """What values of an extra spec are like."""

    is_one: Callable[[str], bool]
    expected: str
    """For error texts."""


def _one_of(*words: str) -> ValueKind:
    return ValueKind(lambda value: value in words, f"one of {', '.join(words)}" if len(words) > 1 else words[0])


def _whole(least: int, most: int | None = None) -> ValueKind:
    def is_one(value: str) -> bool:
        if not re.fullmatch(r"-?[0-9]{1,18}", value):
            return False
        return least <= int(value) and (most is None or int(value) <= most)

    return ValueKind(
        is_one, f"a whole number, at least {least}" if most is None else f"a whole number, {least} to {most}"
    )


def _like(pattern: str, expected: str) -> ValueKind:
    return ValueKind(lambda value: re.fullmatch(pattern, value) is not None, expected)


def _is_yes_no(value: str) -> bool:
    return value in TRUE_WORDS or value in FALSE_WORDS or value.lower() in {"t", "f", "y", "n"}


_YES_NO = ValueKind(_is_yes_no, "true or false")
_TEXT = ValueKind(lambda _: True, "a text")
_COMPARISON = ValueKind(is_comparison, f"a value, or one of {' '.join(OPERATORS)} and what it compares with")
_CPUS = _like(r"\^?\d+(-\d+)?(,\^?\d+(-\d+)?)*", "a set of CPUs, as 0-3,^2,7")
_NAMED = r"[A-Z0-9_]+"
_LEVELS = _one_of("high", "normal", "low", "custom")

KNOWN: tuple[tuple[str, ValueKind], ...] = (
    (rf"resources[A-Za-z0-9_-]{{0,64}}:{_NAMED}", _whole(0)),
    (rf"trait[A-Za-z0-9_-]{{0,64}}:{_NAMED}", _one_of("required", "forbidden")),
    (
        r"trait[A-Za-z0-9_-]{0,64}:any_of(\.[a-z0-9_]{1,64})?",
        _like(rf"{_NAMED}(,{_NAMED})*", "names of traits with commas between"),
    ),
    ("group_policy", _one_of("isolate", "none")),
    ("accel:device_profile", _TEXT),
    ("pci_passthrough:alias", _like(r"[^:]+:\d+(\s*,\s*[^:]+:\d+)*", "NAME:COUNT, several with commas between")),
    (r"capabilities:.+", _COMPARISON),
    (r"aggregate_instance_extra_specs:.+", _COMPARISON),
    ("os:secure_boot", _one_of("required", "disabled")),
    ("hide_hypervisor_id", _YES_NO),
    ("hw:cpu_policy", _one_of("dedicated", "shared", "mixed")),
    ("hw:cpu_thread_policy", _one_of("prefer", "isolate", "require")),
    ("hw:cpu_realtime", _YES_NO),
    ("hw:cpu_realtime_mask", _CPUS),
    ("hw:cpu_dedicated_mask", _CPUS),
    ("hw:emulator_threads_policy", _one_of("isolate", "share")),
    (r"hw:cpu_(max_)?(sockets|cores|threads)", _whole(1)),
    ("hw:numa_nodes", _whole(1)),
    (r"hw:numa_cpus\.\d+", _CPUS),
    (r"hw:numa_mem\.\d+", _whole(1)),
    ("hw:mem_page_size", _like(r"small|large|any|\d+([kKMG]?i?[bB]?)?", "small, large, any, or a size as 2MB")),
    ("hw:pci_numa_affinity_policy", _one_of("required", "preferred", "legacy", "socket")),
    ("hw:mem_encryption_model", _one_of("amd-sev", "amd-sev-es")),
    ("hw:tpm_model", _one_of("tpm-tis", "tpm-crb")),
    ("hw:tpm_version", _one_of("1.2", "2.0")),
    ("hw:tpm_secret_security", _one_of("user", "host", "deployment")),
    ("hw:serial_port_count", _whole(0)),
    ("hw:watchdog_action", _one_of("none", "pause", "poweroff", "reset", "disabled")),
    ("hw:viommu_model", _one_of("auto", "intel", "smmuv3", "virtio")),
    ("hw:virtio_packed_ring", _YES_NO),
    ("hw:sound_model", _one_of("sb16", "es1370", "pcspk", "ac97", "ich6", "ich9", "usb", "virtio")),
    ("hw:usb_model", _one_of("none", "nec-xhci", "qemu-xhci")),
    ("hw:redirected_usb_ports", _whole(0, 15)),
    ("hw:pmem", _like(r"[A-Za-z0-9_]+(,[A-Za-z0-9_]+)*,?", "names of resource classes with commas between")),
    ("hw:ephemeral_encryption_format", _one_of("luks")),
    (
        r"hw:(boot_menu|hide_hypervisor_id|vif_multiqueue_enabled|pmu|mem_encryption|locked_memory|ephemeral_encryption)",
        _YES_NO,
    ),
    ("hw_rng:allowed", _YES_NO),
    (r"hw_rng:rate_(bytes|period)", _whole(0)),
    ("hw_video:ram_max_mb", _whole(0)),
    (r"quota:cpu_(shares|period)", _whole(0)),
    ("quota:cpu_quota", _whole(-(10**18))),
    (r"quota:(cpu|memory|disk_io|vif)_(limit|shares_share|reservation)", _whole(-(10**18))),
    (r"quota:(cpu|memory|disk_io|vif)_shares_level", _LEVELS),
    (r"quota:disk_(read|write|total)_(bytes|iops)_sec", _whole(0)),
    (r"quota:vif_(in|out)bound_(average|burst|peak)", _whole(0)),
    (r"spread:(host|rack|zone)", _like(r"([1-9][0-9]{0,5}|1000000)(:(hard|soft))?", "MAX_SKEW or MAX_SKEW:hard|soft")),
    (r"vmware:(hw_version|storage_policy)", _TEXT),
)
"""Patterns of keys, the first that fits counts, and what their values are like."""
_CHECKS = tuple((re.compile(pattern), kind) for pattern, kind in KNOWN)
_LITERAL = tuple(pattern for pattern, _ in KNOWN if re.escape(pattern) == pattern)
"""Keys that are known as they stand there: for telling who mistyped one."""
_PLACED = re.compile(
    r"capabilities:.+|aggregate_instance_extra_specs:.+|hw:tpm_.+|hw:virtio_packed_ring|hw:ephemeral_encryption(_format)?"
)
"""Keys that hosts are chosen by and that are not read where servers are asked for (`domain/nested/`)."""
_PREFIXES = frozenset(
    {"accel", "aggregate_instance_extra_specs", "capabilities", "hw", "hw_rng", "hw_video", "os", "pci_passthrough"}
    | {"quota", "spread", "vmware"}
)
_GROUP_KEY = re.compile(r"(resources|trait)[A-Za-z0-9_-]{0,64}:(.+)")
_CUSTOM = re.compile(r"CUSTOM_[A-Z0-9_]{1,248}")
_CLASSES = frozenset(os_resource_classes.STANDARDS)
_TRAITS = frozenset(os_traits.get_traits())
A_TRAIT = "a standard trait, or CUSTOM_ and A-Z, 0-9, _"
"""For error texts."""
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
        kind = _kind_of(key)
        if kind is not None:
            _check_value(key, value, kind)
        elif _is_ours(key):
            raise invalid_property(key, value, _known_keys(key))


def check_placed(specs: Mapping[str, str], *, volumes: bool = False) -> None:
    """Check what servers are placed by, of a flavor that may be older than the checks of 2.86.

    Names that nobody knows are let be, as in Nova. Raises BadRequest as `check_extra_specs` does.
    """
    check_names(specs)
    for key, value in specs.items():
        if volumes and key.startswith(VOLUME):
            _check_volume(key, value)
        elif _PLACED.fullmatch(key) and (kind := _kind_of(key)) is not None:
            _check_value(key, value, kind)


def check_names(specs: Mapping[str, str]) -> None:
    """Raise BadRequest naming the first key with a resource class or a trait that neither is standard nor CUSTOM_."""
    for key, value in specs.items():
        found = _GROUP_KEY.fullmatch(key)
        if found is None:
            continue
        kind, name = found.groups()
        if kind == "resources":
            if name not in _CLASSES and not _CUSTOM.fullmatch(name):
                raise invalid_property(key, name, "a standard resource class, or CUSTOM_ and A-Z, 0-9, _")
            continue
        for trait in value.split(",") if name.startswith("any_of") else (name,):
            if not is_trait(trait):
                raise invalid_property(key, trait, A_TRAIT)


def is_trait(name: str) -> bool:
    """Tell whether a name is that of a standard trait, or may be one of an operator's own."""
    return name in _TRAITS or _CUSTOM.fullmatch(name) is not None


def _kind_of(key: str) -> ValueKind | None:
    return next((kind for pattern, kind in _CHECKS if pattern.fullmatch(key)), None)


def _check_value(key: str, value: str, kind: ValueKind) -> None:
    if not kind.is_one(value):
        raise invalid_property(key, value, kind.expected)


def _known_keys(key: str) -> str:
    near = difflib.get_close_matches(key, _LITERAL, n=3)
    return f"a key that is known, perhaps {' or '.join(near)}" if near else "a key that is known under this prefix"


def _check_volume(key: str, value: str) -> None:
    if not _VOLUME_FIELD.fullmatch(key):
        raise invalid_property(key, value, "a key of volume: and a field of that namespace (a-z, 0-9, _)")
    if amount(value) is None:
        raise invalid_property(key, value, f"a number, after one of {OPERATORS_OF_AMOUNTS}")


def _is_ours(key: str) -> bool:
    prefix, colon, _ = key.partition(":")
    return bool(colon) and (prefix in _PREFIXES or _GROUPED.fullmatch(prefix) is not None)
