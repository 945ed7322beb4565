"""The guest's NUMA cells, CPU policy and page size, from the flavor's extra specs and the image's properties.

The rules are Nova's (nova.virt.hardware, "CPU topologies" and "Huge pages" in its administrator guide): which side may
say what, and which combinations contradict each other. Each refusal is a BadRequest that names the key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast

from skep.domain.errors import BadRequest
from skep.domain.flavors import Flavor
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
            raise BadRequest(f"{key}: {value[:80]!r} is none of {', '.join(allowed)}.")
        pair.append(value)
    return pair[0], pair[1]


def _cpu_policy(flavor: Flavor, properties: Properties) -> str:
    specs = flavor.extra_specs
    ours, theirs = _said(specs, properties, "cpu_policy", _POLICIES)
    counted = {name: specs[f"resources:{name}"] for name in (VCPU, PCPU) if f"resources:{name}" in specs}
    if PCPU in counted:
        if ours or theirs:
            raise BadRequest("resources:PCPU: cannot stand beside hw:cpu_policy.")
        if VCPU in counted:
            raise BadRequest("resources:PCPU: cannot stand beside resources:VCPU.")
        if counted[PCPU] != str(flavor.vcpus):
            raise BadRequest(f"resources:PCPU: must be the flavor's {flavor.vcpus} VCPUs.")
        return "dedicated"
    if VCPU in counted and (ours or theirs) in ("dedicated", "mixed"):
        raise BadRequest("resources:VCPU: cannot stand beside hw:cpu_policy.")
    forbidden = {"shared": ("dedicated", "mixed"), "mixed": ("dedicated",)}
    if theirs in forbidden.get(ours, ()):
        raise BadRequest(f"hw_cpu_policy: the image may not ask for {theirs}, the flavor says {ours}.")
    return ours or theirs or "shared"


def _thread_policy(specs: Properties, properties: Properties, policy: str) -> ThreadPolicy:
    ours, theirs = _said(specs, properties, "cpu_thread_policy", _THREADS)
    if policy == "shared":
        if ours or theirs:
            key = "hw:cpu_thread_policy" if ours else "hw_cpu_thread_policy"
            raise BadRequest(f"{key}: needs the CPU policy dedicated or mixed.")
        return "prefer"
    if ours in ("isolate", "require") and theirs not in ("", ours):
        raise BadRequest(f"hw_cpu_thread_policy: the image may not ask for {theirs}, the flavor says {ours}.")
    chosen = theirs if ours in ("", "prefer") and theirs else ours
    return cast("ThreadPolicy", chosen or "prefer")


def _emulator_policy(specs: Properties, policy: str) -> bool:
    key = "hw:emulator_threads_policy"
    value = specs.get(key, "share")
    if value not in ("share", "isolate"):
        raise BadRequest(f"{key}: {value[:80]!r} is none of share, isolate.")
    if value == "isolate" and policy == "shared":
        raise BadRequest(f"{key}: isolate needs the CPU policy dedicated or mixed.")
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
        raise BadRequest(f"{key}: needs the CPU policy mixed.")
    only_without = all(part.strip().startswith("^") for part in mask.split(","))
    text = f"0-{flavor.vcpus - 1},{mask}" if only_without else mask
    pinned = frozenset(cpu_set(key, text))
    if not pinned or not pinned < everybody:
        raise BadRequest(f"{key}: {mask[:80]!r} must name some of the {flavor.vcpus} CPUs, and not all.")
    return pinned


def _check_vcpus(flavor: Flavor) -> None:
    if flavor.vcpus > MOST_VCPUS:
        raise BadRequest(f"vcpus: {flavor.vcpus} CPUs cannot be counted one by one, at most {MOST_VCPUS} can.")


def _realtime_mask(specs: Properties) -> str:
    key = "hw:cpu_realtime_mask"
    if key not in specs:
        raise BadRequest("hw:cpu_policy: mixed needs hw:cpu_dedicated_mask.")
    return specs[key]


def _page_size(specs: Properties, properties: Properties) -> int:
    ours, theirs = specs.get("hw:mem_page_size", ""), properties.get("hw_mem_page_size", "")
    if theirs and ours not in ("large", "any"):
        raise BadRequest("hw_mem_page_size: the image may ask for pages only where the flavor says large or any.")
    asked = _pages("hw:mem_page_size", ours) if ours else PageKind.UNSAID
    return _pages("hw_mem_page_size", theirs) if theirs else asked


def _pages(key: str, text: str) -> int:
    if text in _PAGE_WORDS:
        return _PAGE_WORDS[text]
    found = re.fullmatch(r"([1-9][0-9]{0,9})([KMG]?)(i?[bB])?", text.replace("k", "K"))
    if found is None:
        raise BadRequest(f"{key}: {text[:80]!r} is none of small, large, any, nor a size as 2048, 2MB or 1GB.")
    return int(found[1]) * _UNITS_KIB[found[2]]


def _node_count(specs: Properties, properties: Properties) -> int | None:
    _only_one_side(specs, properties, "numa_nodes")
    for source, key in ((specs, "hw:numa_nodes"), (properties, "hw_numa_nodes")):
        value = source.get(key)
        if value is not None:
            if not value.isdecimal() or not 1 <= int(value) <= MOST_CELLS:
                raise BadRequest(f"{key}: {value[:80]!r} is no number from 1 to {MOST_CELLS}.")
            return int(value)
    return None


def _only_one_side(specs: Properties, properties: Properties, name: str) -> None:
    if f"hw:{name}" in specs and f"hw_{name}" in properties:
        raise BadRequest(f"hw_{name}: the image may not say what the flavor's hw:{name} says.")


def _cells(flavor: Flavor, properties: Properties, nodes: int, dedicated: frozenset[int]) -> tuple[GuestCell, ...]:
    _check_vcpus(flavor)
    specs = flavor.extra_specs
    cpus = _by_cell(specs, properties, "numa_cpus", nodes)
    memory = _by_cell(specs, properties, "numa_mem", nodes)
    if not cpus and not memory:
        return _equal_cells(flavor, nodes, dedicated)
    if len(cpus) != nodes or len(memory) != nodes:
        key = "hw:numa_cpus" if len(cpus) != nodes else "hw:numa_mem"
        raise BadRequest(f"{key}.N: both hw:numa_cpus.N and hw:numa_mem.N must be there for each of {nodes} cells.")
    sets = [frozenset(cpu_set(key, value)) for key, value in cpus]
    named = [number for one in sets for number in one]
    if len(named) != len(set(named)):
        raise BadRequest("hw:numa_cpus.N: a CPU stands in two cells.")
    if set(named) != set(range(flavor.vcpus)):
        raise BadRequest(f"hw:numa_cpus.N: the cells must name each of the flavor's {flavor.vcpus} CPUs.")
    for key, value in memory:
        if not value.isdecimal() or len(value) > 9 or int(value) < 1:
            raise BadRequest(f"{key}: {value[:80]!r} is no amount of MiB.")
    if sum(int(value) for _, value in memory) != flavor.memory_mb:
        raise BadRequest(f"hw:numa_mem.N: the cells must have the flavor's {flavor.memory_mb} MiB together.")
    return tuple(
        GuestCell(shared=len(one - dedicated), dedicated=len(one & dedicated), memory_mb=int(value))
        for one, (_, value) in zip(sets, memory, strict=True)
    )


def _equal_cells(flavor: Flavor, nodes: int, dedicated: frozenset[int]) -> tuple[GuestCell, ...]:
    if flavor.vcpus % nodes or flavor.memory_mb % nodes:
        what = "CPUs" if flavor.vcpus % nodes else "MiB"
        raise BadRequest(f"hw:numa_nodes: the flavor's {what} cannot be shared equally among {nodes} cells.")
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
                if not number.isdecimal() or int(number) >= nodes:
                    raise BadRequest(f"{key}: the guest has the cells 0 to {nodes - 1}.")
                found.append((int(number), key, source[key]))
    numbers = [number for number, _, _ in found]
    if len(numbers) != len(set(numbers)):
        raise BadRequest(f"hw_{name}.N: the image may not say what the flavor's hw:{name}.N says.")
    return [(key, value) for _, key, value in sorted(found)]
