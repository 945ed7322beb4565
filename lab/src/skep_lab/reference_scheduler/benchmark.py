"""The same requests, decided host by host in plain Python: what the engine is compared with."""

from __future__ import annotations

import random
import time

from msgspec.structs import replace

from skep.cli.benchmarks.scheduler.hosts import MadeUpCloud
from skep.cli.benchmarks.scheduler.workloads import Workload
from skep.domain.cells import Cell, HostIntent
from skep.domain.ids import CellUuid, InstanceUuid, NodeUuid
from skep.messages.to_scheduler import AggregatePage
from skep.placement.request import placement_request
from skep.scheduler.records import CellValue, ComputeValue, HearingValue
from skep_lab.reference_scheduler.cloud import ReferenceCloud
from skep_lab.reference_scheduler.deciding import ReferenceScheduler
from skep_lab.reference_scheduler.filters import RULES
from skep_lab.reference_scheduler.weighers import SCORES

MOST_HOSTS = 100_000
"""Of more it would take minutes to decide once."""


def decisions_per_cpu_s(workload: Workload, hosts: int, shapes: int, seed: int, seconds: float) -> float | None:
    """Return how many servers the reference decides about in a second of CPU; None where it cannot be asked.

    It stops after so many seconds, and decides about one request at least. Of filters and weighers it has those that
    are said there: what it leaves out makes it quicker, and what is compared with it look slower.
    """
    if hosts > MOST_HOSTS:
        return None
    settings = replace(
        workload.settings,
        filters=tuple(name for name in workload.settings.filters if name in RULES),
        weighers={name: number for name, number in workload.settings.weighers.items() if name in SCORES},
    )
    scheduler = ReferenceScheduler(_cloud(MadeUpCloud(hosts, seed, workload.report)), settings)
    dice = random.Random(seed + 1)
    decided, ends, began = 0, time.monotonic() + seconds, time.process_time()
    for asked in workload.asking(shapes, dice):
        request = placement_request(asked.spec)
        for _ in range(asked.members):
            decided += 1
            scheduler.place(request, [InstanceUuid(str(decided))], min_count=1, seed=0)
            if time.monotonic() > ends:
                return decided / (time.process_time() - began)
    return None


def _cloud(made_up: MadeUpCloud) -> ReferenceCloud:
    """Tell a reference of the same hosts."""
    cloud = ReferenceCloud()
    for key, value in made_up.values():
        match value:
            case AggregatePage():
                cloud.set_aggregate(value.id, value.hosts, value.metadata)
            case HostIntent():
                cloud.set_intent(value)
            case ComputeValue(cell=cell, report=report) if report is not None:
                cloud.set_report(NodeUuid(key.name), cell, report.usage)
            case CellValue(intent=Cell(uuid=uuid)):
                cloud.set_cell(uuid, known=True, disabled=False, asserted=True, living=True)
            case HearingValue():
                cloud.set_heard(CellUuid(key.name.partition("/")[0]), value.nodes)
    return cloud
