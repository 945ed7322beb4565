"""A made-up cloud: hosts that differ in size, traits, zone and address, as those bought over some years do."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from skep.domain.cells import Cell, HostIntent
from skep.domain.hosts import HostUsage, Report
from skep.domain.ids import CellUuid, NodeUuid
from skep.domain.resources import DISK_GB, MEMORY_MB, VCPU, Inventory
from skep.messages.to_scheduler import AggregatePage
from skep.placement.hosts.table import Intake
from skep.placement.knowledge import Knowledge
from skep.scheduler import records
from skep.scheduler.records import BeatValue, CellValue, ComputeValue, HearingValue
from skep.synchronizer.base import Key

CELLS = 4
ZONES = 3
TRAIT_SETS = 20
TRAITS_OF_HOST = 30
SIZES = ((32, 128), (64, 256), (64, 512), (96, 384), (128, 1024))
"""Cores and GiB of memory of the kinds of hosts."""
OVERCOMMIT = 4.0
"""Virtual CPUs for each core, as Nova's `cpu_allocation_ratio`."""
_GIB = 1024
_AT_ONCE = 1000
"""Reports that are taken together."""


def trait(number: int) -> str:
    """Return one of the traits that hosts have."""
    return f"HW_CPU_X86_FEATURE_{number:04}"


def zone(number: int) -> str:
    """Return the name of a zone by its number."""
    return f"zone-{number}"


def _metadata(number: int) -> dict[str, str]:
    return {"availability_zone": zone(number), "tier": str(number)}


class MadeUpCloud:
    """So many hosts, the same for the same seed."""

    def __init__(self, hosts: int, seed: int, report: Callable[[str, int], HostUsage] | None = None) -> None:
        """`report`: what a host says by its name and number, if it is not what is made up here."""
        self._report = report
        self.hosts = hosts
        self._dice = random.Random(seed)  # noqa: S311 - chosen so that it can be repeated
        self._names = [f"compute-{number:07}" for number in range(hosts)]
        self._nothing: dict[str, Any] = {}
        self._kind = bytes(self._dice.choices(range(len(SIZES)), k=hosts))
        """Of each host, its place in `SIZES`."""
        self._traits = [tuple(trait(first + n) for n in range(TRAITS_OF_HOST)) for first in range(TRAIT_SETS)]
        self._inventories = [
            {
                VCPU: Inventory(total=cores, allocation_ratio=OVERCOMMIT),
                MEMORY_MB: Inventory(total=memory * _GIB, reserved=512),
                DISK_GB: Inventory(total=60 * cores),
            }
            for cores, memory in SIZES
        ]

        self._cpus: list[dict[str, object]] = [
            {"arch": "x86_64", "model": f"Model-{kind}", "topology": {"cores": cores // 2, "threads": 2}}
            for kind, (cores, _) in enumerate(SIZES)
        ]

    def _hosts_of_zone(self, number: int) -> tuple[str, ...]:
        return tuple(self.name(host) for host in range(number, self.hosts, ZONES))

    @staticmethod
    def node(number: int) -> NodeUuid:
        """Return the node of a host by its number."""
        return NodeUuid(f"{number:08x}-0000-4000-8000-{number:012x}")

    @staticmethod
    def cell(number: int) -> CellUuid:
        """Return the cell of a host by its number."""
        return CellUuid(f"00000000-0000-4000-8000-{number % CELLS:012x}")

    def name(self, number: int) -> str:
        """Return the name of a host by its number."""
        return self._names[number]

    def usage(self, number: int, dice: random.Random) -> HostUsage:
        """Return what a host reports at some moment: up to 60 % of its memory is used."""
        if self._report is not None:
            return self._report(self.name(number), number)
        kind = self._kind[number]
        memory = SIZES[kind][1]
        servers, name = dice.randrange(memory * 6 // 10 // 4), self.name(number)
        return HostUsage(
            host=name,
            hypervisor_hostname=name,
            inventory=self._inventories[kind],
            used={VCPU: servers, MEMORY_MB: servers * 4 * _GIB, DISK_GB: servers * 10},
            traits=self._traits[number % TRAIT_SETS],
            servers=servers,
            hypervisor_type="QEMU",
            hypervisor_version=7_002_000,
            host_ip=f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}",
            cpu_info=self._cpus[kind],
            metrics=self._nothing,
            stats=self._nothing,
            image_properties=self._nothing,
            started_at=1_700_000_000_000_000 + number,
        )

    def tell(self, known: Knowledge) -> None:
        """Make the hosts known as a library's user does, without records."""
        table, intake = known.table, Intake(known.table)
        for number in range(ZONES):
            table.set_aggregate(number + 1, self._hosts_of_zone(number), _metadata(number))
        cells = [self.cell(number) for number in range(CELLS)]
        heard: dict[CellUuid, list[NodeUuid]] = {cell: [] for cell in cells}
        for cell in cells:
            table.set_cell(cell, known=True, asserted=True)
        for number in range(self.hosts):
            node, usage = self.node(number), self.usage(number, self._dice)
            cell = cells[number % CELLS]
            table.set_intent(HostIntent(node=node, host=usage.host, cell=cell))
            intake.report(node, cell, usage)
            heard[cell].append(node)
            if number % _AT_ONCE == 0:
                intake.flush()
        intake.flush()
        for cell, nodes in heard.items():
            known.take_beat(cell, "one", tuple(nodes), 1, 0.0)

    def values(self) -> Iterator[tuple[Key, Any]]:
        """Yield the value of every record: aggregates, hosts, what the operator wants of them, cells, beats."""
        for number in range(ZONES):
            yield (
                Key(records.AGGREGATES, str(number + 1)),
                AggregatePage(id=number + 1, hosts=self._hosts_of_zone(number), metadata=_metadata(number)),
            )
        for number in range(self.hosts):
            node, cell = self.node(number), self.cell(number)
            yield Key(records.OPERATOR, node), HostIntent(node=node, host=self.name(number), cell=cell)
            report = Report(incarnation=1, seq=1, usage=self.usage(number, self._dice))
            yield Key(records.COMPUTE, node), ComputeValue(cell=cell, report=report)
        for number in range(min(CELLS, self.hosts)):
            cell = self.cell(number)
            yield Key(records.CELLS, cell), CellValue(intent=Cell(uuid=cell, name=cell), asserted=True)
            nodes = tuple(self.node(host) for host in range(number, self.hosts, CELLS))
            yield records.hearing_key(cell, "one", 0), HearingValue(version=1, nodes=nodes)
            yield records.beat_key(cell, "one"), BeatValue(pages=(1,), at=1)
