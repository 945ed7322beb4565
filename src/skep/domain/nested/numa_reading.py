"""The guest's NUMA cells, CPU policy and page size, from the flavor's extra specs and the image's properties.

The rules are Nova's (nova.virt.hardware, "CPU topologies" and "Huge pages" in its administrator guide): which side may
say what, and which combinations contradict each other. Each refusal is a BadRequest that names the key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast

from skep.domain.flavors import Flavor
from skep.domain.invalid_input import invalid_field, invalid_property
from skep.domain.nested.cpu_sets import MOST_CPUS, cpu_set
from skep.domain.nested.wanted import GuestCell, NumaWanted, PageKind, ThreadPolicy
from skep.domain.resources import VCPU

PCPU = "PCPU"
MOST_CELLS = 64
MOST_VCPUS = MOST_CPUS
"""Of a guest with NUMA cells or pinned CPUs: no host has more to pin."""
_PAGE_WORDS = {"small": PageKind.SMALL, "large": PageKind.LARGE, "any": PageKind.ANY}
_UNITS_KIB = {"": 1, "K": 1, "M": 1024, "G": 1024 * 1024}
"""Nova's page sizes without a unit are KiB."""
_THREADS = ("prefer", "isolate", "require")
_POLICIES = ("shared", "dedicated", "mixed")

_NUMBER = re.compile("[0-9]{1,9}")
_NEEDS_PINNED = "hw:cpu_policy dedicated or mixed beside it"

Properties = Mapping[str, str]


def numa_wanted(flavor: Flavor, properties: Properties) -> NumaWanted | None:
    """Return what is asked of NUMA cells and CPUs; None when nothing is.

    Raises BadRequest naming the key that cannot be, or that contradicts another.
    """
    specs = flavor.extra_specs
    policy = _cpu_policy(flavor, properties)
    threads = _thread_policy(specs, properties, policy)
    own_emulator = _emulator_policy(specs, policy)
    dedicated = _dedicated_cpus(flavor, policy)
    page = _page_size(specs, properties)
    nodes = _node_count(specs, properties)
    if nodes is None and not dedicated and page == PageKind.UNSAID:
        return None
    cells = _cells(flavor, properties, nodes or 1, dedicated)
    return NumaWanted(cells=cells, threads=threads, page=page, own_emulator=own_emulator)


def _said(specs: Properties, properties: Properties, name: str, allowed: tuple[str, ...]) -> tuple[str, str]:
    """Return what flavor and image say of `hw:NAME` and `hw_NAME`, empty where nothing."""
    pair = []
    for source, key in ((specs, f"hw:{name}"), (properties, f"hw_{name}")):
        value = source.get(key, "")
        if value and value not in allowed:
            raise invalid_property(key, value, f"one of {', '.join(allowed)}")
        pair.append(value)
    return pair[0], pair[1]


def guest_cpus(flavor: Flavor, properties: Properties) -> list[tuple[list[int], frozenset[int]]] | None:
    """Return of each NUMA cell of a guest its CPUs, and those that are pinned; None where it asks for no cells.

    Raises BadRequest as `numa_wanted`.
    """
    wanted = numa_wanted(flavor, properties)
    if wanted is None:
        return None
    dedicated = _dedicated_cpus(flavor, _cpu_policy(flavor, properties))
    named = _by_cell(flavor.extra_specs, properties, "numa_cpus", len(wanted.cells))
    if named:
        cells = [list(cpu_set(key, value)) for key, value in named]
    else:
        each = flavor.vcpus // len(wanted.cells)
        cells = [list(range(number * each, (number + 1) * each)) for number in range(len(wanted.cells))]
    return [(numbers, dedicated & frozenset(numbers)) for numbers in cells]


def _cpu_policy(flavor: Flavor, properties: Properties) -> str:
    specs = flavor.extra_specs
    ours, theirs = _said(specs, properties, "cpu_policy", _POLICIES)
    counted = {name: specs[f"resources:{name}"] for name in (VCPU, PCPU) if f"resources:{name}" in specs}
    if PCPU in counted:
        if ours or theirs:
            raise invalid_property("resources:PCPU", counted[PCPU], "nothing beside hw:cpu_policy")
        if VCPU in counted:
            raise invalid_property("resources:PCPU", counted[PCPU], "nothing beside resources:VCPU")
        if counted[PCPU] != str(flavor.vcpus):
            raise invalid_property("resources:PCPU", counted[PCPU], f"the flavor's {flavor.vcpus} VCPUs")
        return "dedicated"
    if VCPU in counted and (ours or theirs) in ("dedicated", "mixed"):
        raise invalid_property("resources:VCPU", counted[VCPU], f"nothing beside hw:cpu_policy {ours or theirs}")
    forbidden = {"shared": ("dedicated", "mixed"), "mixed": ("dedicated",)}
    if theirs in forbidden.get(ours, ()):
        raise invalid_property("hw_cpu_policy", theirs, f"nothing else than the flavor's {ours}")
    return ours or theirs or "shared"


def _thread_policy(specs: Properties, properties: Properties, policy: str) -> ThreadPolicy:
    ours, theirs = _said(specs, properties, "cpu_thread_policy", _THREADS)
    if policy == "shared":
        if ours or theirs:
            key = "hw:cpu_thread_policy" if ours else "hw_cpu_thread_policy"
            raise invalid_property(key, ours or theirs, _NEEDS_PINNED)
        return "prefer"
    if ours in ("isolate", "require") and theirs not in ("", ours):
        raise invalid_property("hw_cpu_thread_policy", theirs, f"nothing else than the flavor's {ours}")
    chosen = theirs if ours in ("", "prefer") and theirs else ours
    return cast("ThreadPolicy", chosen or "prefer")


def _emulator_policy(specs: Properties, policy: str) -> bool:
    key = "hw:emulator_threads_policy"
    value = specs.get(key, "share")
    if value not in ("share", "isolate"):
        raise invalid_property(key, value, "share or isolate")
    if value == "isolate" and policy == "shared":
        raise invalid_property(key, value, _NEEDS_PINNED)
    return value == "isolate"


def _dedicated_cpus(flavor: Flavor, policy: str) -> frozenset[int]:
    """Return which of the guest's CPUs are pinned. A mask that begins with `^` takes from all of them."""
    key = "hw:cpu_dedicated_mask"
    mask = flavor.extra_specs.get(key)
    if mask is None and policy == "shared":
        return frozenset()
    _check_vcpus(flavor)
    everybody = frozenset(range(flavor.vcpus))
    if mask is None:
        if policy == "mixed":
            mask = _realtime_mask(flavor.extra_specs)
        if mask is None:
            return everybody if policy == "dedicated" else frozenset()
    elif policy != "mixed":
        raise invalid_property(key, mask, "the CPU policy mixed beside it")
    only_without = all(part.strip().startswith("^") for part in mask.split(","))
    text = f"0-{flavor.vcpus - 1},{mask}" if only_without else mask
    pinned = frozenset(cpu_set(key, text))
    if not pinned or not pinned < everybody:
        raise invalid_property(key, mask, f"some of the flavor's {flavor.vcpus} CPUs, and not all")
    return pinned


def _check_vcpus(flavor: Flavor) -> None:
    if flavor.vcpus > MOST_VCPUS:
        expected = f"at most {MOST_VCPUS} where CPUs are pinned or have NUMA cells"
        raise invalid_field("flavor.vcpus", flavor.vcpus, expected)


def _realtime_mask(specs: Properties) -> str:
    key = "hw:cpu_realtime_mask"
    if key not in specs:
        raise invalid_property("hw:cpu_policy", "mixed", "hw:cpu_dedicated_mask beside it")
    return specs[key]


def _page_size(specs: Properties, properties: Properties) -> int:
    ours, theirs = specs.get("hw:mem_page_size", ""), properties.get("hw_mem_page_size", "")
    if theirs and ours not in ("large", "any"):
        raise invalid_property("hw_mem_page_size", theirs, "a flavor with hw:mem_page_size large or any")
    asked = _pages("hw:mem_page_size", ours) if ours else PageKind.UNSAID
    return _pages("hw_mem_page_size", theirs) if theirs else asked


def _pages(key: str, text: str) -> int:
    if text in _PAGE_WORDS:
        return _PAGE_WORDS[text]
    found = re.fullmatch(r"([1-9][0-9]{0,9})([KMG]?)(i?[bB])?", text.replace("k", "K"))
    if found is None:
        raise invalid_property(key, text, "small, large, any, or a size as 2048, 2MB or 1GB")
    return int(found[1]) * _UNITS_KIB[found[2]]


def _node_count(specs: Properties, properties: Properties) -> int | None:
    _only_one_side(specs, properties, "numa_nodes")
    for source, key in ((specs, "hw:numa_nodes"), (properties, "hw_numa_nodes")):
        value = source.get(key)
        if value is not None:
            if not _NUMBER.fullmatch(value) or not 1 <= int(value) <= MOST_CELLS:
                raise invalid_property(key, value, f"a whole number, 1 to {MOST_CELLS}")
            return int(value)
    return None


def _only_one_side(specs: Properties, properties: Properties, name: str) -> None:
    if f"hw:{name}" in specs and f"hw_{name}" in properties:
        raise invalid_property(f"hw_{name}", properties[f"hw_{name}"], f"nothing beside the flavor's hw:{name}")


def _cells(flavor: Flavor, properties: Properties, nodes: int, dedicated: frozenset[int]) -> tuple[GuestCell, ...]:
    _check_vcpus(flavor)
    specs = flavor.extra_specs
    cpus = _by_cell(specs, properties, "numa_cpus", nodes)
    memory = _by_cell(specs, properties, "numa_mem", nodes)
    if not cpus and not memory:
        return _equal_cells(flavor, nodes, dedicated)
    if len(cpus) != nodes or len(memory) != nodes:
        key, found = ("hw:numa_cpus.N", cpus) if len(cpus) != nodes else ("hw:numa_mem.N", memory)
        expected = f"hw:numa_cpus.N and hw:numa_mem.N for each of {nodes} cells"
        raise invalid_property(key, f"{len(found)} of them", expected)
    sets = [frozenset(cpu_set(key, value)) for key, value in cpus]
    named = [number for one in sets for number in one]
    if len(named) != len(set(named)):
        raise invalid_property("hw:numa_cpus.N", _together(cpus), "each CPU in one cell")
    if set(named) != set(range(flavor.vcpus)):
        raise invalid_property("hw:numa_cpus.N", _together(cpus), f"each of the flavor's {flavor.vcpus} CPUs")
    for key, value in memory:
        if not _NUMBER.fullmatch(value) or int(value) < 1:
            raise invalid_property(key, value, "a whole number of MiB, at least 1")
    if sum(int(value) for _, value in memory) != flavor.memory_mb:
        raise invalid_property("hw:numa_mem.N", _together(memory), f"the flavor's {flavor.memory_mb} MiB together")
    return tuple(
        GuestCell(shared=len(one - dedicated), dedicated=len(one & dedicated), memory_mb=int(value))
        for one, (_, value) in zip(sets, memory, strict=True)
    )


def _equal_cells(flavor: Flavor, nodes: int, dedicated: frozenset[int]) -> tuple[GuestCell, ...]:
    if flavor.vcpus % nodes or flavor.memory_mb % nodes:
        what = f"{flavor.vcpus} CPUs" if flavor.vcpus % nodes else f"{flavor.memory_mb} MiB"
        raise invalid_property("hw:numa_nodes", nodes, f"a number of cells that share the flavor's {what} equally")
    each = flavor.vcpus // nodes
    cells = []
    for number in range(nodes):
        mine = frozenset(range(number * each, (number + 1) * each))
        pinned = len(mine & dedicated)
        cells.append(GuestCell(shared=each - pinned, dedicated=pinned, memory_mb=flavor.memory_mb // nodes))
    return tuple(cells)


def _by_cell(specs: Properties, properties: Properties, name: str, nodes: int) -> list[tuple[str, str]]:
    """Return key and value of `hw:NAME.N` for the cells that have one, in their order."""
    found = []
    for source, prefix in ((specs, f"hw:{name}."), (properties, f"hw_{name}.")):
        for key in source:
            if key.startswith(prefix):
                number = key.removeprefix(prefix)
                if not _NUMBER.fullmatch(number) or int(number) >= nodes:
                    raise invalid_property(key, source[key], f"a cell of the guest, 0 to {nodes - 1}")
                found.append((int(number), key, source[key]))
    numbers = [number for number, _, _ in found]
    if len(numbers) != len(set(numbers)):
        raise invalid_property(f"hw_{name}.N", "", f"nothing beside the flavor's hw:{name}.N")
    return [(key, value) for _, key, value in sorted(found)]


def _together(pairs: list[tuple[str, str]]) -> str:
    return "; ".join(value for _, value in pairs)
