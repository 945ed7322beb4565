"""Several schedulers on one memory of records, asked at random; what happens to each of them is drawn from one seed.

A crowd plays all others too: callers that repeat what was not answered, hosts that report, cells that beat and assert
what their rows say. Its own book of answered claims is what records are compared with.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from skep.domain.builds import Decision, Placed
from skep.domain.cells import Cell, HostIntent
from skep.domain.claims import Claim, ClaimKey
from skep.domain.errors import Unavailable
from skep.domain.flavors import Flavor
from skep.domain.groups import GroupRule
from skep.domain.hosts import HostUsage
from skep.domain.ids import CellUuid, InstanceUuid, NodeUuid, ProjectId, UserId
from skep.domain.request_specs import RequestSpec
from skep.domain.resources import Inventory
from skep.messages.to_scheduler import (
    AssertClaims,
    HostReport,
    Member,
    PublishOperatorState,
    ReleaseClaims,
    SelectDestinations,
    Slot,
    UpdateHostState,
)
from skep.messages.to_scheduler_liveness import Beat
from skep.placement.groups import member_nodes
from skep.placement.settings import SchedulerSettings
from skep.scheduler import records
from skep.scheduler.records import ComputeValue, GroupValue
from skep.simulator.replay import Tally, replay
from skep.synchronizer.memory import MemoryBackend
from tests.functional.schedulers.killable import Gone, Process
from tests.support.decision_logs import MemoryLog
from tests.support.stores.memory import MemoryStore

CELLS = (CellUuid("cell-0"), CellUuid("cell-1"))


@dataclass
class Row:
    """What the book knows of an answered claim."""

    node: NodeUuid
    resources: dict[str, int]
    epoch: str
    group: GroupRule | None


@dataclass
class Crowd:
    """All of it. `close` it in the end."""

    seed: int
    hosts: int = 12
    vcpus: int = 4
    partition: bool = True
    settings: dict[str, Any] = field(default_factory=dict)
    """What else schedulers are told."""
    store: MemoryStore = field(default_factory=MemoryStore)
    processes: list[Process] = field(default_factory=list)
    book: dict[tuple[str, int], Row] = field(default_factory=dict)
    outcomes: Counter[str] = field(default_factory=Counter)
    seq: int = 0

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.nodes = [NodeUuid(f"node-{number:03d}") for number in range(self.hosts)]

    async def start(self, schedulers: int) -> None:
        for _ in range(schedulers):
            await self.join()
        await self.publish()
        await self.heal()

    async def publish(self) -> None:
        """Publish what the operator wants."""
        hosts = tuple(HostIntent(node=node, host=f"host-{node}", cell=self.cell_of(node)) for node in self.nodes)
        cells = tuple(Cell(uuid=cell, name=cell) for cell in CELLS)
        await self.call(PublishOperatorState(hosts=hosts, aggregates=(), cells=cells))

    async def join(self) -> Process:
        """Start one more scheduler."""
        process = Process(self.store, self.dice, SchedulerSettings(partition=self.partition, **self.settings))
        await process.service.start()
        self.processes.append(process)
        await self.acquaint()
        return process

    async def acquaint(self) -> None:
        """Have all schedulers that live beat, read and share the hosts, as they do each second."""
        for process in self.living:
            await process.service._membership.beat()
        for process in self.living:
            await process.service._mirror.look()
        for process in self.living:
            process.service._membership.share()

    async def close(self) -> None:
        for process in self.processes:
            for gate in process.gates:
                gate.set()
            if not process.here.dead:
                process.backend.loses = 0.0
                await process.service.stop()
        for process in self.processes:
            check_log(process.log)

    @property
    def living(self) -> list[Process]:
        return [process for process in self.processes if not process.here.dead]

    def cell_of(self, node: NodeUuid) -> CellUuid:
        return CELLS[self.nodes.index(node) % len(CELLS)]

    async def call(self, message: Any, tries: int = 200) -> Any:
        """Ask any scheduler, and another one until there is an answer."""
        for _ in range(tries):
            try:
                return await self.dice.choice(self.living).here.call(message)
            except (Unavailable, Gone):
                self.outcomes["repeated"] += 1
                await asyncio.sleep(0)
        raise AssertionError(f"nobody answered {type(message).__name__}")

    # --- cells and hosts ------------------------------------------------------------------------

    async def heal(self) -> None:
        """Let cells beat and assert, and hosts report, until nothing is left to be told."""
        for _ in range(20):
            epochs = set()
            for cell in CELLS:
                epochs.add(await self._beat(cell))
            for node in self.nodes:
                await self.report(node)
            for process in self.living:
                await process.service._mirror.look()
            if epochs == {await self.epoch()}:
                return
        raise AssertionError("the cells are never done with asserting")

    async def epoch(self) -> str:
        return await MemoryBackend(records=self.store.records).epoch()

    async def _beat(self, cell: CellUuid) -> str | None:
        """Beat as a cell does; return the epoch in which it has asserted, None when it had to do so."""
        heard = tuple(node for node in self.nodes if self.cell_of(node) == cell)
        reply = await self.call(Beat(cell=cell, heard=heard))
        rows = {key: row for key, row in self.book.items() if self.cell_of(row.node) == cell}
        older = {key: row for key, row in rows.items() if row.epoch != reply.epoch}
        epoch: str = reply.epoch
        if reply.asserted and not older:
            return epoch
        await self._assert(cell, epoch, older if reply.asserted else rows)
        return None

    async def _assert(self, cell: CellUuid, epoch: str, rows: dict[tuple[str, int], Row]) -> None:
        claims = tuple(
            Claim(
                instance=InstanceUuid(instance),
                attempt=attempt,
                node=row.node,
                resources=row.resources,
                group=row.group.uuid if row.group else None,
            )
            for (instance, attempt), row in rows.items()
        )
        slots = tuple(
            Slot(key=name_of(key, row), policy=row.group.policy, max_server_per_host=row.group.max_server_per_host)
            for key, row in rows.items()
            if row.group is not None
        )
        reply = await self.call(AssertClaims(cell=cell, epoch=epoch, claims=claims, slots=slots))
        if reply.epoch != epoch:
            return
        refused = {(key.instance, key.attempt) for key in reply.refused}
        for key, row in rows.items():
            row.epoch = epoch
            if key in refused:
                self.outcomes["attempt failed"] += 1
                self.book.pop(key, None)

    async def report(self, node: NodeUuid) -> None:
        """Report as an idle host does: the servers are claims for ever here."""
        self.seq += 1
        usage = HostUsage(
            host=f"host-{node}",
            inventory={"VCPU": Inventory(total=self.vcpus), "MEMORY_MB": Inventory(total=self.vcpus * 1024)},
            used={},
            hypervisor_hostname=node,
        )
        report = HostReport(node=node, cell=self.cell_of(node), incarnation=1, seq=self.seq, usage=usage)
        await self.call(UpdateHostState(reports=(report,)))

    # --- servers --------------------------------------------------------------------------------

    async def create(self, names: tuple[str, ...], *, vcpus: int = 1, group: GroupRule | None = None) -> list[Decision]:
        """Have hosts chosen as the super conductor does, and note them in the book."""
        flavor = Flavor(flavorid="1", name="f", vcpus=vcpus, memory_mb=256, root_gb=0)
        spec = RequestSpec(project_id=ProjectId("p"), user_id=UserId("u"), flavor=flavor, group=group)
        message = SelectDestinations(spec=spec, members=tuple(Member(InstanceUuid(name), 1) for name in names))
        decisions: list[Decision] = list((await self.call(message)).decisions)
        for name, decision in zip(names, decisions, strict=True):
            self.outcomes[type(decision).__name__] += 1
            if isinstance(decision, Placed):
                self.book[name, 1] = Row(decision.node, spec.resources(), decision.epoch, group)
        return decisions

    async def delete(self, key: tuple[str, int]) -> None:
        row = self.book.pop(key)
        await self.call(ReleaseClaims(claims=(name_of(key, row),)))

    # --- what must be true ----------------------------------------------------------------------

    async def contents(self) -> dict[tuple[str, str], Any]:
        snapshot = await MemoryBackend(records=self.store.records).snapshot()
        return {
            (record.key.namespace, record.key.name): records.decode(snapshot.epoch, record)
            for record in snapshot.records
        }

    async def claimed(self) -> dict[tuple[str, int], set[str]]:
        """Return the nodes on which each attempt has a claim."""
        nodes: dict[tuple[str, int], set[str]] = {}
        for (namespace, name), value in (await self.contents()).items():
            if namespace == "compute":
                for claim in value.claims:
                    nodes.setdefault(claim.key, set()).add(name)
        return nodes

    async def check(self) -> None:
        """Compare the records with the book: no host overcommitted, no group violated, no answered claim lost."""
        contents = await self.contents()
        for (namespace, name), value in contents.items():
            if namespace == "compute" and isinstance(value, ComputeValue):
                taken = sum(claim.resources["VCPU"] for claim in value.claims)
                assert taken <= self.vcpus, f"{name} is overcommitted"
        for key, row in self.book.items():
            value = contents["compute", row.node]
            assert key in [claim.key for claim in value.claims], f"the claim of {key} on {row.node} is lost"
            if row.group is not None:
                self._check_slot(key, row, contents["groups", row.group.uuid])

    def _check_slot(self, key: tuple[str, int], row: Row, group: GroupValue) -> None:
        rule = row.group
        assert rule is not None
        places = [slot.node for slot in group.slots if (slot.instance, slot.attempt) == key]
        assert row.node in places, f"the slot of {key} on {row.node} is lost"
        others = member_nodes(group.slots, InstanceUuid(key[0]), rule.policy)
        if rule.policy == "affinity":
            assert not others or row.node in others, f"{key} is not with its group"
        else:
            assert others.get(row.node, 0) < rule.max_server_per_host, f"{key} is not apart from its group"


def check_log(log: MemoryLog) -> None:
    """Whatever happened to a scheduler: what it wrote down comes out the same when it is decided once more."""
    tally = Tally()
    for segment in log.entries():
        replay(segment, tally)
    assert tally.differences == []
    assert (tally.incomplete, tally.reproduced) == (0, tally.decisions)


def name_of(key: tuple[str, int], row: Row) -> ClaimKey:
    return ClaimKey(InstanceUuid(key[0]), key[1], row.node, row.group.uuid if row.group else None)
