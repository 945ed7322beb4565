"""Host states in pages, by conditions and fields; states of other services, written and read through the service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from skep.contracts.eventually import eventually
from skep.domain.cells import Cell, HostIntent
from skep.domain.clock import Clock
from skep.domain.errors import BadRequest, NotFound
from skep.domain.ids import CellUuid, NodeUuid
from skep.domain.namespaces import Join, Namespace, NamespaceField, Schema
from skep.messages.to_scheduler import (
    AggregatePage,
    AssertClaims,
    GetHostStates,
    HostReport,
    ListNamespaces,
    PublishOperatorState,
    UpdateHostState,
)
from skep.messages.to_scheduler_liveness import Beat
from skep.messages.to_scheduler_namespaces import (
    GetNamespaceStates,
    PublishNamespaces,
    RemoveNamespaceStates,
    StateUpdate,
    UpdateNamespaceStates,
    UpdateNamespaceStatesReply,
)
from skep.placement.settings import SchedulerSettings
from skep.scheduler.namespaced import MISSING_SECONDS
from skep.scheduler.service import SchedulerService
from skep.synchronizer.memory import MemoryBackend
from skep.transport.base import SCHEDULER
from skep.transport.host_states import host_states
from skep.transport.memory import MemoryTransport

CELLS = (CellUuid("cell-1"), CellUuid("cell-2"))
HOSTS = 10
VOLUME = Namespace(
    name="volume",
    schema=Schema(
        fields={
            "free_gb": NamespaceField(type="integer", required=True, minimum=0),
            "volumes": NamespaceField(type="strings", max_items=3),
            "fast": NamespaceField(type="boolean"),
            "kind": NamespaceField(type="string"),
        },
        join=Join(names="host"),
        max_states=20,
    ),
)


class Cloud:
    """Two schedulers on one backend; hosts h0 to h9 in two cells, each with as many free CPUs as its number says."""

    def __init__(self, usage: Any) -> None:
        self.transport = MemoryTransport()
        self.backend = MemoryBackend()
        self.usage = usage
        self.now = 0.0
        self.services = [
            SchedulerService(self.transport, self.backend, SchedulerSettings(), Clock(), monotonic=lambda: self.now)
            for _ in range(2)
        ]

    async def call(self, message: Any) -> Any:
        return await self.transport.call(SCHEDULER, message)

    async def start(self) -> None:
        await self.services[0].start()
        wishes = tuple(HostIntent(node=NodeUuid(f"n{n}"), host=f"h{n}", cell=CELLS[n % 2]) for n in range(HOSTS))
        east = AggregatePage(id=7, hosts=("h1", "h2"), metadata={"availability_zone": "east"})
        cells = tuple(Cell(uuid=cell, name=cell) for cell in CELLS)
        await self.call(PublishOperatorState(hosts=wishes, aggregates=(east,), cells=cells))
        await self.call(PublishNamespaces(namespaces=(VOLUME,)))
        epoch = await self.backend.epoch()
        for cell in CELLS:
            heard = tuple(wish.node for wish in wishes if wish.cell == cell and wish.node != "n3")
            await self.call(Beat(cell=cell, heard=heard))
            await self.call(AssertClaims(cell=cell, epoch=epoch, claims=()))
        traits = {2: ("HW_CPU_X86_AVX2",)}
        reports = [
            HostReport(
                node=wish.node,
                cell=wish.cell,
                incarnation=1,
                seq=1,
                usage=self.usage(wish.host, vcpus=16, cpu_ratio=1.0, used={"VCPU": 16 - n}, traits=traits.get(n, ())),
            )
            for n, wish in enumerate(wishes)
        ]
        await self.call(UpdateHostState(reports=tuple(reports)))

    async def nodes(self, *conditions: str, **by: Any) -> list[str]:
        reply = await self.call(GetHostStates(conditions=conditions, **by))
        return [state.node for state in reply.hosts]

    async def write(self, *updates: tuple[str, dict[str, Any]], seq: int = 1) -> UpdateNamespaceStatesReply:
        told = tuple(StateUpdate(key=key, incarnation=1, seq=seq, state=state) for key, state in updates)
        reply: UpdateNamespaceStatesReply = await self.call(UpdateNamespaceStates(namespace="volume", updates=told))
        return reply


@pytest.fixture
async def cloud(usage: Any) -> AsyncIterator[Cloud]:
    made = Cloud(usage)
    await made.start()
    yield made
    for service in made.services:
        await service.stop()


# --- host states ----------------------------------------------------------------------------------


async def test_pages_follow_one_another_in_the_order_of_nodes(cloud: Cloud) -> None:
    first = await cloud.call(GetHostStates(limit=4))
    assert [state.node for state in first.hosts] == ["n0", "n1", "n2", "n3"]
    assert first.next_marker == "n3"
    last = await cloud.call(GetHostStates(limit=4, marker=NodeUuid("n7")))
    assert [state.node for state in last.hosts] == ["n8", "n9"]
    assert last.next_marker is None
    assert await cloud.nodes(marker=NodeUuid("n99")) == []
    assert len(await host_states(cloud.transport, GetHostStates(limit=3))) == HOSTS


@pytest.mark.parametrize(
    ("conditions", "nodes"),
    [
        (("free.VCPU>=8",), ["n8", "n9"]),
        (("free.VCPU > 8",), ["n9"]),
        (("used.VCPU=16",), ["n0"]),
        (("capacity.VCPU<16",), []),
        (("claimed.VCPU!=0",), []),
        (("trait=HW_CPU_X86_AVX2",), ["n2"]),
        (("trait!=HW_CPU_X86_AVX2", "free.VCPU<=3"), ["n0", "n1", "n3"]),
        (("up=false",), ["n3"]),
        (("up!=false", "zone=east"), ["n1", "n2"]),
        (("aggregate=7", "host=h1"), ["n1"]),
        (("ready=true", "disabled=false", "forced_down=false", "failed_builds=0", "host!=h0", "free.VCPU<2"), ["n1"]),
        (("free.CUSTOM_NOBODY>0",), []),
    ],
)
async def test_conditions(cloud: Cloud, conditions: tuple[str, ...], nodes: list[str]) -> None:
    assert await cloud.nodes(*conditions) == nodes


async def test_what_narrows_narrows_together(cloud: Cloud) -> None:
    assert await cloud.nodes(cell=CELLS[0], zone="east") == ["n2"]
    assert await cloud.nodes(aggregate=7, hosts=("h1", "h5")) == ["n1"]
    assert await cloud.nodes(nodes=(NodeUuid("n5"), NodeUuid("n6"), NodeUuid("nobody")), cell=CELLS[1]) == ["n5"]
    assert await cloud.nodes(cell=CellUuid("none")) == []
    assert await cloud.nodes(zone="nowhere") == []


@pytest.mark.parametrize(
    ("condition", "says"),
    [
        ("nonsense", "operators are"),
        ("", "operators are"),
        ("free.VCPU>=many", "expected a number"),
        ("free.VCPU>=nan", "expected a number"),
        ("free.vcpu>=1", "no field 'free.vcpu'"),
        ("colour=red", "no field 'colour'"),
        ("volume.colour=red", "no field 'volume.colour'"),
        ("up=maybe", "expected true or false"),
        ("up>=true", "expected = or !="),
        ("trait>=X", "expected = or !="),
        ("aggregate=east", "number of an aggregate"),
        ("x" * 5000, "operators are"),
    ],
)
async def test_a_bad_condition_is_named(cloud: Cloud, condition: str, says: str) -> None:
    with pytest.raises(BadRequest, match=says):
        await cloud.nodes(condition)


@pytest.mark.parametrize(
    "fields",
    [("colour",), ("usage.colour",), ("usage.inventory.vcpu",), ("usage.inventory.VCPU.x",), ("volume.x",), (), ("",)],
)
async def test_a_field_that_there_is_not_is_named(cloud: Cloud, fields: tuple[str, ...]) -> None:
    with pytest.raises(BadRequest, match="fields"):
        await cloud.call(GetHostStates(fields=fields))


async def test_a_page_of_no_size_is_refused(cloud: Cloud) -> None:
    for limit in (0, -1, 1001):
        with pytest.raises(BadRequest, match="limit"):
            await cloud.call(GetHostStates(limit=limit))
    with pytest.raises(BadRequest, match="conditions"):
        await cloud.nodes(*["up=true"] * 33)


async def test_only_the_fields_that_were_asked_for(cloud: Cloud) -> None:
    await cloud.write(("h9", {"free_gb": 90, "volumes": ["b", "a"], "kind": "ssd"}))
    names = (
        *("usage.host", "up", "free.VCPU", "usage.inventory.VCPU.total", "usage.inventory.PCPU", "usage.used.VCPU"),
        *("volume.free_gb", "volume.volumes", "volume.kind", "volume.fast", "volume", "zone"),
    )
    reply = await cloud.call(GetHostStates(fields=names, nodes=(NodeUuid("n9"),)))
    assert reply.hosts == ()
    assert reply.documents == (
        {
            "node": "n9",
            "usage.host": "h9",
            "up": True,
            "free.VCPU": 9,
            "usage.inventory.VCPU.total": 16,
            "usage.inventory.PCPU": None,
            "usage.used.VCPU": 7,
            "volume.free_gb": 90,
            "volume.volumes": ["a", "b"],
            "volume.kind": ["ssd"],
            "volume.fast": None,
            "volume": [{"free_gb": 90, "volumes": ["b", "a"], "kind": "ssd"}],
            "zone": "nova",
        },
    )


async def test_a_page_ends_before_it_is_too_large_for_a_message(cloud: Cloud, usage: Any) -> None:
    large = {f"fact {number}": "x" * 1000 for number in range(63)}
    reports = [
        HostReport(
            node=NodeUuid(f"n{n}"), cell=CELLS[n % 2], incarnation=1, seq=2, usage=usage(f"h{n}", cpu_info=large)
        )
        for n in range(HOSTS)
    ]
    for report in reports:
        await cloud.call(UpdateHostState(reports=(report,)))
    first = await cloud.call(GetHostStates())
    assert 0 < len(first.hosts) < HOSTS
    assert first.next_marker == first.hosts[-1].node
    assert [state.node for state in await host_states(cloud.transport)] == [f"n{n}" for n in range(HOSTS)]


# --- states of other services -----------------------------------------------------------------------


async def test_states_are_stored_joined_and_read_again_by_every_scheduler(cloud: Cloud) -> None:
    reply = await cloud.write(("h1", {"free_gb": 10}), ("h2", {"free_gb": 20, "fast": True}), ("h77", {"free_gb": 7}))
    assert [answer.generation for answer in reply.answers] == [1, 1, 1]
    assert reply.known
    assert reply.epoch == await cloud.backend.epoch()
    assert await cloud.nodes("volume.free_gb>=10") == ["n1", "n2"]
    assert await cloud.nodes("volume.fast=true") == ["n2"]
    await cloud.services[1].start()
    await cloud.services[0].stop()
    assert await cloud.nodes("volume.free_gb>=10") == ["n1", "n2"]
    page = await cloud.call(GetNamespaceStates(namespace="volume", limit=2))
    assert [(one.key, one.nodes) for one in page.states] == [("h1", ("n1",)), ("h2", ("n2",))]
    rest = await cloud.call(GetNamespaceStates(namespace="volume", marker=page.next_marker))
    assert [(one.key, one.state, one.nodes, one.seq) for one in rest.states] == [("h77", {"free_gb": 7}, (), 1)]
    assert rest.next_marker is None
    named = await cloud.call(GetNamespaceStates(namespace="volume", keys=("h2", "h5")))
    assert [one.key for one in named.states] == ["h2"]
    assert (await cloud.call(ListNamespaces())).namespaces["volume"] == 3


async def test_one_bad_state_does_not_touch_the_others(cloud: Cloud) -> None:
    reply = await cloud.write(
        ("h1", {"free_gb": -1}),
        ("h2", {"free_gb": 2}),
        ("h3", {}),
        ("h4", {"free_gb": 4, "colour": "red"}),
        ("h5", {"free_gb": 5, "volumes": ["a", "b", "c", "d"]}),
        ("h6", {"free_gb": 2**60}),
        ("h7/x", {"free_gb": 7}),
        ("h8", {"free_gb": True}),
        ("h9", {"free_gb": 9, "volumes": "a"}),
    )
    refused = {answer.key: (answer.refused or "").partition(":")[0] for answer in reply.answers}
    assert refused == {
        "h1": "free_gb",
        "h2": "",
        "h3": "free_gb",
        "h4": "colour",
        "h5": "volumes",
        "h6": "free_gb",
        "h7/x": "key",
        "h8": "free_gb",
        "h9": "volumes",
    }
    assert await cloud.nodes("volume.free_gb>=0") == ["n2"]


async def test_an_older_state_is_refused_and_a_repeat_changes_nothing(cloud: Cloud) -> None:
    await cloud.write(("h1", {"free_gb": 5}), seq=5)
    (older,) = (await cloud.write(("h1", {"free_gb": 4}), seq=4)).answers
    assert older.stale
    assert "older" in (older.refused or "")
    (repeat,) = (await cloud.write(("h1", {"free_gb": 5}), seq=5)).answers
    assert (repeat.refused, repeat.generation) == (None, 1)
    (other,) = (await cloud.write(("h1", {"free_gb": 6}), seq=5)).answers
    assert "another state" in (other.refused or "")
    (newer,) = (await cloud.write(("h1", {"free_gb": 6}), seq=6)).answers
    assert newer.generation == 2


async def test_a_namespace_holds_so_many_states_and_no_more(cloud: Cloud) -> None:
    reply = await cloud.write(*((f"k{n}", {"free_gb": n}) for n in range(25)))
    assert [answer.refused is None for answer in reply.answers] == [True] * 20 + [False] * 5
    assert "holds 20 states" in (reply.answers[-1].refused or "")
    (again,) = (await cloud.write(("k1", {"free_gb": 0}), seq=2)).answers
    assert again.refused is None


async def test_states_are_removed_by_key_and_with_their_namespace(cloud: Cloud) -> None:
    await cloud.write(("h1", {"free_gb": 1}), ("h2", {"free_gb": 2}), ("h3", {"free_gb": 3}))
    removed = await cloud.call(RemoveNamespaceStates(namespace="volume", keys=("h1", "h1x")))
    assert removed.released == 1
    assert await cloud.nodes("volume.free_gb>0") == ["n2", "n3"]
    await cloud.call(PublishNamespaces(namespaces=(), removed=("volume",)))
    assert "volume" not in (await cloud.call(ListNamespaces())).namespaces
    with pytest.raises(NotFound):
        await cloud.call(GetNamespaceStates(namespace="volume"))
    assert not (await cloud.write(("h1", {"free_gb": 1}))).known
    await cloud.call(PublishNamespaces(namespaces=(VOLUME,)))
    assert await cloud.nodes("volume.free_gb>0") == []


async def test_a_message_from_before_a_registration_loses_no_states(cloud: Cloud) -> None:
    await cloud.write(("h1", {"free_gb": 1}))
    await cloud.call(PublishNamespaces(namespaces=()))
    assert not (await cloud.write(("h2", {"free_gb": 2}))).known
    await cloud.call(PublishNamespaces(namespaces=(VOLUME,)))
    assert await cloud.nodes("volume.free_gb>0") == ["n1"]


async def test_states_without_a_namespace_go_after_a_while(cloud: Cloud) -> None:
    await cloud.write(("h1", {"free_gb": 1}))
    for now in (0.0, MISSING_SECONDS - 1, MISSING_SECONDS):
        cloud.now = now
        await cloud.call(PublishNamespaces(namespaces=()))
    await cloud.call(PublishNamespaces(namespaces=(VOLUME,)))
    assert await cloud.nodes("volume.free_gb>0") == []


async def test_under_a_new_epoch_the_namespace_is_unknown_until_it_is_told_again(cloud: Cloud) -> None:
    first = await cloud.write(("h1", {"free_gb": 1}))
    await cloud.backend.begin_epoch(await cloud.backend.epoch())

    async def unknown() -> bool:
        return not (await cloud.write(("h1", {"free_gb": 1}), seq=2)).known

    await eventually(unknown, "the namespace is unknown")
    await cloud.call(PublishNamespaces(namespaces=(VOLUME,)))
    assert await cloud.nodes("volume.free_gb>5") == []
    second = await cloud.write(("h1", {"free_gb": 7}), seq=3)
    assert second.epoch != first.epoch
    assert [answer.refused for answer in second.answers] == [None]


async def test_a_schema_that_may_not_be_is_refused(cloud: Cloud) -> None:
    bad = Namespace(name="compute", schema=VOLUME.schema)
    with pytest.raises(BadRequest, match="reserved"):
        await cloud.call(PublishNamespaces(namespaces=(bad,)))
