"""Several schedulers that give out the same CPUs, pages and devices: nothing is ever promised twice."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from skep.domain.builds import Decision, NoValidHost, Placed
from skep.domain.hosts import HostUsage
from skep.domain.ids import InstanceUuid, NodeUuid
from skep.domain.nested.layout import layout_of
from skep.domain.nested.room import Room
from skep.domain.providers import Allocation
from skep.domain.request_specs import RequestSpec
from skep.messages.to_scheduler import HostReport, Member, SelectDestinations, UpdateHostState
from skep.simulator.inside import GPU, devices, host_with_inside, spec_for_parts
from tests.functional.schedulers.crowd import Crowd, Row

PINNED = {"hw:cpu_policy": "dedicated", "hw:mem_page_size": "large"}
KINDS = (
    spec_for_parts(2, 512, PINNED, devices(GPU, 1, "preferred"), root_gb=0),
    spec_for_parts(4, 1024, PINNED | {"hw:numa_nodes": "2"}, root_gb=0),
    spec_for_parts(1, 512, PINNED, devices(GPU, 1, "required"), root_gb=0),
    spec_for_parts(3, 256, PINNED, root_gb=0),
)


def inside(node: NodeUuid) -> HostUsage:
    return host_with_inside(node, cells=2, cores=4, threads=2, shared=2, memory_mb=4096, huge_mb=2048, gpus=2, nics=0)


class PartsCrowd(Crowd):
    """Hosts that tell of their inside."""

    async def report(self, node: NodeUuid) -> None:
        self.seq += 1
        report = HostReport(node=node, cell=self.cell_of(node), incarnation=1, seq=self.seq, usage=inside(node))
        await self.call(UpdateHostState(reports=(report,)))

    async def place(self, name: str, spec: RequestSpec) -> Decision:
        message = SelectDestinations(spec=spec, members=(Member(InstanceUuid(name), 1),))
        (decision,) = (await self.call(message)).decisions
        if isinstance(decision, Placed):
            self.book[name, 1] = Row(decision.node, spec.resources(), decision.epoch, None)
        found: Decision = decision
        return found

    async def promised(self) -> dict[tuple[str, int], Allocation]:
        """Return what all records promise, after looking that no part of a host is promised twice."""
        found: dict[tuple[str, int], Allocation] = {}
        for (namespace, name), value in (await self.contents()).items():
            if namespace != "compute":
                continue
            room = Room(layout_of(inside(NodeUuid(name))))
            for claim in value.claims:
                assert claim.allocation is not None
                assert room.has(claim.allocation), f"{name} has promised something twice"
                room.take(claim.allocation)
                assert claim.key not in found
                found[claim.key] = claim.allocation
        return found


@pytest.mark.parametrize("seed", range(4))
async def test_no_part_is_promised_twice(seed: int) -> None:
    crowd = PartsCrowd(seed=seed, hosts=3, partition=False)
    await crowd.start(2)
    answers: dict[str, Decision] = {}

    async def place(number: int) -> None:
        name = f"server-{number}"
        answers[name] = await crowd.place(name, KINDS[(number + seed) % len(KINDS)])

    for batch in range(5):
        await asyncio.gather(*(place(batch * 8 + number) for number in range(8)))
        promised = await crowd.promised()
        for (name, attempt), row in crowd.book.items():
            answer = answers[name]
            assert isinstance(answer, Placed)
            assert promised[name, attempt] == answer.allocation, f"{name} was told of other parts than it has"
            assert row.node == answer.node
        for key in sorted(crowd.book)[batch::3]:
            await crowd.delete(key)
    await crowd.close()
    assert Counter(type(answer) for answer in answers.values())[Placed] > 15


async def test_a_full_host_says_so_and_takes_the_next_when_one_goes() -> None:
    crowd = PartsCrowd(seed=1, hosts=1, partition=False)
    await crowd.start(2)
    spec = spec_for_parts(8, 512, PINNED, devices(GPU, 2, "required"), root_gb=0)
    first, second = [await crowd.place(name, spec) for name in ("a", "b")]
    assert isinstance(first, Placed)
    assert isinstance(second, Placed)
    assert first.allocation is not None
    assert second.allocation is not None
    assert {first.allocation.cells[0].cell, second.allocation.cells[0].cell} == {0, 1}
    assert isinstance(await crowd.place("c", spec), NoValidHost)
    await crowd.delete(("a", 1))
    third = await crowd.place("d", spec)
    assert isinstance(third, Placed)
    assert third.allocation == first.allocation
    await crowd.close()
