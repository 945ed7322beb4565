"""Hosts to place servers on: made up, read from a file, or as a running cloud tells of them."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from skep.domain.decoding import convert
from skep.domain.hosts import HostState, HostUsage
from skep.domain.ids import CellUuid, NodeUuid
from skep.domain.providers import Provider, Topology
from skep.domain.resources import DISK_GB, MEMORY_MB, VCPU, Inventory
from skep.placement.hosts.published import DEFAULT_ZONE, Aggregate
from skep.simulator.traces.flavors import GPU_MILLI
from skep.simulator.traces.openb import THOUSANDTHS, model_trait
from skep.simulator.traces.rows import BadTrace, TraceRow, header_of, rows_of

OPENB_NODES = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
HOSTS = ("host", "vcpus", "memory_mb", "disk_gb")
MOST_GPUS = 1024
"""Of one host: each of them is looked at when a request asks for some."""
_MOST = 2**31
Amount = Annotated[int, Meta(ge=0, le=_MOST)]


class CloudPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A cloud."""

    name: str
    hosts: tuple[HostState, ...]
    """Each before the first server comes."""
    aggregates: dict[int, Aggregate] = {}


class HostKind(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Some hosts that are alike."""

    count: Annotated[int, Meta(ge=1, le=10_000_000)]
    vcpus: Amount
    memory_gib: Amount
    disk_gib: Amount = 0
    gpus: Annotated[int, Meta(ge=0, le=MOST_GPUS)] = 0
    name: str = "host"
    cell: str = ""
    """Empty: in turn one of the cloud's."""
    zone: str = ""
    """Empty: in turn one of the cloud's."""
    traits: tuple[str, ...] = ()
    cpu_allocation_ratio: Annotated[float, Meta(gt=0)] = 1.0
    ram_allocation_ratio: Annotated[float, Meta(gt=0)] = 1.0
    disk_allocation_ratio: Annotated[float, Meta(gt=0)] = 1.0

    def inventory(self) -> dict[str, Inventory]:
        """Return what one of them has."""
        amounts = {
            VCPU: (self.vcpus, self.cpu_allocation_ratio),
            MEMORY_MB: (self.memory_gib * 1024, self.ram_allocation_ratio),
            DISK_GB: (self.disk_gib, self.disk_allocation_ratio),
            GPU_MILLI: (self.gpus * THOUSANDTHS, 1.0),
        }
        return {
            name: Inventory(total=total, allocation_ratio=ratio) for name, (total, ratio) in amounts.items() if total
        }


class MadeUp(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cloud as a file describes it."""

    hosts: tuple[HostKind, ...]
    cells: Annotated[int, Meta(ge=1)] = 1
    """How many there are for hosts that name none; likewise zones, 0: they are in the default one."""
    zones: Annotated[int, Meta(ge=0)] = 0


def gpus_of(count: int) -> Topology | None:
    """Return the inside of a host with so many GPUs, each a provider of its own of which shares are given out."""
    if not count:
        return None
    whole = {GPU_MILLI: Inventory(total=THOUSANDTHS)}
    return Topology(providers=tuple(Provider(name=f"gpu-{number}", inventory=whole) for number in range(count)))


def made_up(cloud: MadeUp, name: str = "a made-up cloud") -> CloudPlan:
    """Return the hosts of a made-up cloud."""
    total = sum(kind.count for kind in cloud.hosts)
    planned: list[HostState] = []
    for kind in cloud.hosts:
        inventory, topology = kind.inventory(), gpus_of(kind.gpus)
        for _ in range(kind.count):
            number = len(planned)
            zone = kind.zone or (f"zone-{number % cloud.zones + 1}" if cloud.zones else None)
            cell = kind.cell or f"cell-{number * cloud.cells // total + 1}"
            host = f"{kind.name}-{number:06d}"
            planned.append(_planned(host, inventory, topology, cell=cell, zone=zone, traits=kind.traits))
    return CloudPlan(name=name, hosts=tuple(planned))


def read(path: Path) -> CloudPlan:
    """Read a cloud: TOML with `[[hosts]]`, or CSV with a line for each host.

    Raises BadTrace saying what is wrong, OSError as the disk does.
    """
    if path.suffix == ".toml":
        return made_up(_described(path), path.stem)
    columns = set(header_of(path))
    if columns.issuperset(OPENB_NODES):
        hosts = [_openb_node(row) for row in rows_of(path, OPENB_NODES)]
    elif columns.issuperset(HOSTS):
        hosts = [_listed(row, columns) for row in rows_of(path, HOSTS)]
    else:
        raise BadTrace(f"{path}, line 1: expected the columns {','.join(HOSTS)} or {','.join(OPENB_NODES)}")
    if not hosts:
        raise BadTrace(f"{path}: expected at least one host")
    if len({host.node for host in hosts}) != len(hosts):
        raise BadTrace(f"{path}: expected each host name once")
    return CloudPlan(name=path.stem, hosts=tuple(hosts))


def of_states(
    states: Iterable[HostState], aggregates: Mapping[int, Aggregate], *, name: str, empty: bool = False
) -> CloudPlan:
    """Return the hosts of a running cloud as its schedulers know them; `empty`: as if nobody were on them."""
    hosts = (_emptied(state) for state in states) if empty else states
    return CloudPlan(name=name, hosts=tuple(hosts), aggregates=dict(aggregates))


def scaled(usage: HostUsage, units: Mapping[str, int]) -> HostUsage:
    """Return what a host has and uses, counted in parts of units."""
    if not units:
        return usage
    inventory = {
        name: msgspec.structs.replace(
            one, total=one.total * units.get(name, 1), reserved=one.reserved * units.get(name, 1)
        )
        for name, one in usage.inventory.items()
    }
    used = {name: amount * units.get(name, 1) for name, amount in usage.used.items()}
    return msgspec.structs.replace(usage, inventory=inventory, used=used)


def _described(path: Path) -> MadeUp:
    try:
        return convert(tomllib.loads(path.read_text(encoding="utf-8")), MadeUp)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise BadTrace(f"{path}: {error}") from error


def _planned(
    host: str,
    inventory: dict[str, Inventory],
    topology: Topology | None = None,
    *,
    cell: str = "cell-1",
    zone: str | None = None,
    traits: tuple[str, ...] = (),
) -> HostState:
    usage = HostUsage(
        host=host, inventory=inventory, used={}, traits=traits, hypervisor_hostname=host, topology=topology
    )
    return HostState(
        node=NodeUuid(host),
        cell=CellUuid(cell),
        usage=usage,
        incarnation=1,
        seq=1,
        up=True,
        zone=zone or DEFAULT_ZONE,
    )


def _openb_node(row: TraceRow) -> HostState:
    cpu = row.amount("cpu_milli")
    if cpu % THOUSANDTHS:
        raise row.refuse("cpu_milli", f"expected whole cores, found {cpu}")
    gpus, model = _gpus(row, "gpu"), row.text("model")
    amounts = {VCPU: cpu // THOUSANDTHS, MEMORY_MB: row.amount("memory_mib"), GPU_MILLI: gpus * THOUSANDTHS}
    traits = (model_trait(model),) if gpus and model else ()
    return _planned(row.name("sn"), _inventory(amounts), gpus_of(gpus), traits=traits)


def _listed(row: TraceRow, columns: set[str]) -> HostState:
    amounts = {VCPU: row.amount("vcpus"), MEMORY_MB: row.amount("memory_mb"), DISK_GB: row.amount("disk_gb")}
    gpus = _gpus(row, "gpus") if "gpus" in columns else 0
    amounts[GPU_MILLI] = gpus * THOUSANDTHS
    cell = row.text("cell") if "cell" in columns else ""
    zone = row.text("zone") if "zone" in columns else ""
    return _planned(row.name("host"), _inventory(amounts), gpus_of(gpus), cell=cell or "cell-1", zone=zone)


def _gpus(row: TraceRow, column: str) -> int:
    count = row.amount(column)
    if count > MOST_GPUS:
        raise row.refuse(column, f"expected at most {MOST_GPUS}, found {count}")
    return count


def _inventory(amounts: Mapping[str, int]) -> dict[str, Inventory]:
    return {name: Inventory(total=total) for name, total in amounts.items() if total}


def _emptied(state: HostState) -> HostState:
    usage = msgspec.structs.replace(
        state.usage, used=dict.fromkeys(state.usage.used, 0), servers=0, instances=0, io_ops=0, taken=None
    )
    return msgspec.structs.replace(state, usage=usage, claims=())
