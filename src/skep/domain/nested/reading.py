"""From a flavor, an image and device aliases to what is asked of the inside of a host."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

from skep.domain.errors import BadRequest
from skep.domain.flavors import Flavor
from skep.domain.invalid_input import invalid_property
from skep.domain.nested.numa_reading import numa_wanted
from skep.domain.nested.wanted import GROUP_POLICY, Affinity, DeviceRequest, Group, PortsWanted, Wanted
from skep.domain.resources import DISK_GB, MEMORY_MB, VCPU, Resources

AFFINITIES: tuple[Affinity, ...] = ("legacy", "preferred", "required", "socket")
MOST_GROUPS = 32
MOST_AMOUNT = 2**31 - 1
_OF_HOST = frozenset({VCPU, MEMORY_MB, DISK_GB, "PCPU"})
"""Classes that are counted for the host as a whole; where in it they are, NUMA cells say."""
_KEY = re.compile(r"(resources|trait)([A-Za-z0-9_-]{0,64}):(.+)")
_ANY_OF = re.compile(r"any_of(\.[a-z0-9_]{1,64})?")
_NAME = re.compile(r"[A-Z0-9_]{1,255}")

Pairs = tuple[tuple[str, str], ...]


NO_PORTS = PortsWanted()


def wanted(
    flavor: Flavor,
    properties: dict[str, str],
    devices: tuple[DeviceRequest, ...] = (),
    ports: PortsWanted = NO_PORTS,
) -> Wanted | None:
    """Return what is asked beside flat amounts and the host's own traits; None when that is nothing.

    Raises BadRequest naming the key that cannot be, or that contradicts another.
    """
    if not flavor.extra_specs and not properties and not devices and ports == NO_PORTS:
        return None
    image = tuple((key, value) for key, value in properties.items() if key.startswith("hw_"))
    specs = tuple(flavor.extra_specs.items())
    return _wanted(flavor.vcpus, flavor.memory_mb, specs, image, devices, ports)


@functools.lru_cache(maxsize=4096)
def _wanted(
    vcpus: int, memory_mb: int, specs: Pairs, image: Pairs, devices: tuple[DeviceRequest, ...], ports: PortsWanted
) -> Wanted | None:
    flavor = Flavor(flavorid="", name="", vcpus=vcpus, memory_mb=memory_mb, extra_specs=dict(specs))
    properties = dict(image)
    groups = _groups(specs)
    loose = groups.pop("", None)
    numbered = tuple(group for _, group in sorted(groups.items()))
    for group in numbered:
        if not group.resources:
            raise _nothing_asked(group)
    found = Wanted(
        numa=numa_wanted(flavor, properties),
        loose=tuple(item for item in loose.resources if item[0] not in _OF_HOST) if loose is not None else (),
        groups=numbered,
        isolated=_isolated(flavor) and bool(numbered or ports.groups),
        devices=_near(flavor, properties, devices),
        ports=ports,
    )
    return None if found == Wanted() else found


def any_of(specs: dict[str, str]) -> tuple[tuple[str, ...], ...]:
    """Return the traits of which a host must have one each, from `trait:any_of` and `trait:any_of.WORD`.

    Raises BadRequest naming the key.
    """
    if not any(key.startswith("trait:any_of") for key in specs):
        return ()
    loose = _groups(tuple(specs.items())).get("")
    return loose.any_of if loose is not None else ()


def resources_of(flavor: Flavor, asked: Wanted | None) -> Resources:
    """Return what is taken of a host's flat inventory: pinned CPUs are PCPU, all others VCPU."""
    amounts = flavor.resources()
    if asked is None:
        return amounts
    if asked.numa is not None:
        numa = asked.numa
        pinned = sum(cell.dedicated for cell in numa.cells) + numa.own_emulator
        if pinned:
            amounts["PCPU"] = pinned
            amounts[VCPU] = sum(cell.shared for cell in numa.cells)
    for name, amount in asked.resources().items():
        amounts[name] = amounts.get(name, 0) + amount
    return {name: amount for name, amount in amounts.items() if amount}


def _groups(specs: Pairs) -> dict[str, Group]:
    """Return the groups by name; that without a name is the unnumbered one."""
    amounts: dict[str, dict[str, int]] = {}
    traits: dict[str, dict[str, list[str]]] = {}
    choices: dict[str, list[tuple[str, ...]]] = {}
    for key, value in specs:
        found = _KEY.fullmatch(key)
        if found is None:
            continue
        kind, group, name = found.groups()
        if kind == "resources":
            amounts.setdefault(group, {})[_named(key, name)] = _amount(key, value)
        elif _ANY_OF.fullmatch(name):
            choices.setdefault(group, []).append(_choice(key, value))
        elif value in ("required", "forbidden"):
            traits.setdefault(group, {}).setdefault(value, []).append(_named(key, name))
        else:
            raise invalid_property(key, value, "required or forbidden")
    names = {*amounts, *traits, *choices}
    if len(names) > MOST_GROUPS:
        raise invalid_property("resources", f"{len(names)} groups", f"at most {MOST_GROUPS} groups")
    return {
        name: Group(
            name=name,
            resources=tuple(sorted(item for item in amounts.get(name, {}).items() if item[1])),
            required=tuple(sorted(traits.get(name, {}).get("required", ()))),
            forbidden=tuple(sorted(traits.get(name, {}).get("forbidden", ()))),
            any_of=tuple(sorted(choices.get(name, ()))),
        )
        for name in names
    }


def _nothing_asked(group: Group) -> BadRequest:
    """Return what is wrong with a group that has no resources: traits alone, or amounts of 0."""
    said = [(trait, "required") for trait in group.required] + [(trait, "forbidden") for trait in group.forbidden]
    said += [("any_of", ",".join(choice)) for choice in group.any_of]
    for name, value in said:
        return invalid_property(f"trait{group.name}:{name}", value, f"resources{group.name}:CLASS beside it")
    return invalid_property(f"resources{group.name}", 0, "an amount above 0")


def _named(key: str, name: str) -> str:
    if not _NAME.fullmatch(name):
        raise invalid_property(key, name, "a name of capital letters, digits and _")
    return name


def _amount(key: str, value: str) -> int:
    if not re.fullmatch(r"[0-9]{1,10}", value) or int(value) > MOST_AMOUNT:
        raise invalid_property(key, value, f"a whole number, 0 to {MOST_AMOUNT}")
    return int(value)


def _choice(key: str, value: str) -> tuple[str, ...]:
    return tuple(sorted({_named(key, name.strip()) for name in value.split(",")}))


def _isolated(flavor: Flavor) -> bool:
    """Tell whether groups must have different providers; without a word of the operator they need not (Nova)."""
    policy = flavor.extra_specs.get(GROUP_POLICY)
    if policy not in (None, "none", "isolate"):
        raise invalid_property(GROUP_POLICY, policy, "none or isolate")
    return policy == "isolate"


def _near(flavor: Flavor, properties: dict[str, str], devices: Iterable[DeviceRequest]) -> tuple[DeviceRequest, ...]:
    """Return the requests under the flavor's or the image's affinity, where either says one (Nova: not both)."""
    ours, theirs = flavor.extra_specs.get("hw:pci_numa_affinity_policy"), properties.get("hw_pci_numa_affinity_policy")
    if ours and theirs and ours != theirs:
        raise invalid_property("hw_pci_numa_affinity_policy", theirs, f"what the flavor says, {ours}")
    key = "hw:pci_numa_affinity_policy" if ours else "hw_pci_numa_affinity_policy"
    said = ours or theirs
    if said is None:
        return tuple(devices)
    for affinity in AFFINITIES:
        if affinity == said:
            return tuple(
                DeviceRequest(alias=one.alias, count=one.count, matches=one.matches, affinity=affinity)
                for one in devices
            )
    raise invalid_property(key, said, f"one of {', '.join(AFFINITIES)}")
