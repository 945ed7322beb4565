"""Agents and conductors on a bus where anybody hears and says anything: each believes only the other.

What an attacker may do here no NATS account lets him do; it has to be worth nothing all the same.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import structlog

from skep.compute.conversation import Conversation
from skep.compute.identity import begin_run
from skep.contracts.cloud import Cloud, running_cloud
from skep.contracts.eventually import eventually
from skep.database.cell import agents, sessions
from skep.domain.cells import Cell
from skep.domain.context import RequestContext
from skep.domain.errors import Forbidden, NotFound, SkepError
from skep.domain.ids import Incarnation, InstanceUuid, NodeUuid, ProjectId, UserId, new_request_id, new_uuid
from skep.domain.instances import PowerState, State, Task
from skep.messages.to_cell_conductor import (
    AgentCall,
    Built,
    Destroyed,
    Heartbeat,
    MayBuild,
    RegisterAgent,
    ReportProgress,
    TaskDone,
)
from skep.messages.to_compute import ChangePower, TerminateInstance
from skep.processes.conducting import make_cell_conductor
from skep.transport.base import cell_conductor, compute
from tests.support.bus import OpenBus

SECRET = "nobody else may read this name"


@pytest.fixture
async def bus() -> OpenBus:
    return OpenBus()


@pytest.fixture
async def cloud(bus: OpenBus, tmp_path: Path) -> AsyncIterator[Cloud]:
    async with running_cloud(tmp_path, cells=1, hosts=2, transport=bus) as cloud:
        yield cloud


def cell_of(cloud: Cloud) -> Cell:
    return next(cell for cell in cloud.plane.cells.values() if not cell.is_cell0)


def context() -> RequestContext:
    return RequestContext(request_id=new_request_id(), project_id=ProjectId("p"), user_id=UserId("u"))


async def built(cloud: Cloud) -> tuple[InstanceUuid, str]:
    [uuid] = await cloud.create(1, name=SECRET)
    [server] = await cloud.settled([uuid])
    assert server.state is State.ACTIVE
    assert server.host is not None
    await cloud.no_claims()
    return uuid, server.host


def thief_of(cloud: Cloud, bus: OpenBus, host: str) -> Conversation:
    """Return an attacker who has taken over the agent of `host`: he has its identity, and speaks as it."""
    identity = begin_run(cloud.directory.host("cell1", host), host)

    async def keep(_key: bytes) -> None:
        return

    return Conversation(bus, cell_of(cloud).uuid, identity, Incarnation(new_uuid()), keep)


async def unchanged(cloud: Cloud, uuid: InstanceUuid, host: str) -> None:
    """See that the server runs where it ran, under its first attempt."""
    server = await cloud.find(uuid)
    assert server is not None
    assert (server.state, server.host, server.attempt, server.task) == (State.ACTIVE, host, 1, None)
    assert [guest.instance for guest in await cloud.plane.drivers[host].guests()] == [uuid]


async def test_nothing_of_a_server_is_readable_on_the_way_to_its_host_and_back(cloud: Cloud, bus: OpenBus) -> None:
    uuid, _ = await built(cloud)
    between = bus.heard_at("conductor", "compute")
    assert between
    for address, data in between:
        assert SECRET.encode() not in data, address
    ordered = [data for _, data in bus.heard_at("compute")]
    assert not any(uuid.encode() in data for data in ordered)
    await cloud.delete(uuid)
    await cloud.nothing_left()


async def test_what_was_recorded_and_is_said_again_changes_nothing(cloud: Cloud, bus: OpenBus) -> None:
    uuid, host = await built(cloud)
    before = await cloud.plane.databases.cells["cell1"].read(agents.list_all)
    recorded = bus.heard_at("conductor", "compute")
    with structlog.testing.capture_logs() as logged:
        for address, data in recorded:
            if not address.startswith("answer"):
                await bus.deliver(address, data)

        async def said() -> bool:
            return any(line.get("reason") == "an order was repeated" for line in logged)

        await eventually(said, "the agent has refused a repeated order, and the log names it")
    another, _ = await built(cloud)
    assert {one.node: (one.incarnation, one.process) for one in before} == {
        one.node: (one.incarnation, one.process)
        for one in await cloud.plane.databases.cells["cell1"].read(agents.list_all)
    }
    await cloud.delete(another)
    await cloud.gone([another])
    await unchanged(cloud, uuid, host)


async def test_without_proof_nothing_is_believed_of_a_host_and_the_log_names_it(cloud: Cloud, bus: OpenBus) -> None:
    uuid, host = await built(cloud)
    node, address = cloud.plane.agents[host].node, cell_conductor(cell_of(cloud).uuid)
    calls: list[Any] = [
        Destroyed(instance=uuid, host=host, attempts=(1,), up_to=9),
        Built(instance=uuid, attempt=1, host=host, launched_at=1),
        MayBuild(instance=uuid, attempt=1, host=host, incarnation=99),
        TaskDone(
            instance=uuid, attempt=1, host=host, task=Task.POWERING_OFF, task_id="t", power_state=PowerState.SHUTDOWN
        ),
    ]
    with structlog.testing.capture_logs() as logged:
        for call in calls:
            with pytest.raises(Forbidden, match="no proof"):
                await bus.call(address, call)
        for cast in (Heartbeat(node=node, incarnation=1), ReportProgress(host=host)):
            await bus.cast(address, cast)
        row = await cloud.plane.databases.cells["cell1"].read(partial(sessions.of_node, node=node))
        assert row is not None
        with pytest.raises(Forbidden, match="not signed"):
            await bus.call(address, RegisterAgent(identity=row.identity))

        async def named() -> bool:
            reasons = [line["reason"] for line in logged if line["event"] == "agent refused"]
            return any("Heartbeat" in one for one in reasons) and any("ReportProgress" in one for one in reasons)

        await eventually(named, "hints are refused too, in the log")
    assert not cloud.plane.agents[host].fenced
    await unchanged(cloud, uuid, host)


async def test_an_agent_that_speaks_for_another_host_is_refused_and_named(cloud: Cloud, bus: OpenBus) -> None:
    uuid, host = await built(cloud)
    other = next(name for name in cloud.plane.agents if name != host)
    await cloud.stop_agent(other)
    thief = thief_of(cloud, bus, other)
    await thief.call(RegisterAgent(identity=None), 5.0)  # type: ignore[arg-type]  # the conversation fills it in
    node = NodeUuid(cloud.plane.agents[host].node)
    said: list[Any] = [
        Destroyed(instance=uuid, host=host, attempts=(1,), up_to=9),
        TaskDone(
            instance=uuid, attempt=1, host=host, task=Task.POWERING_OFF, task_id="t", power_state=PowerState.SHUTDOWN
        ),
        MayBuild(instance=uuid, attempt=1, host=host),
    ]
    with structlog.testing.capture_logs() as logged:
        for call in said:
            with pytest.raises(Forbidden, match="claims to be"):
                await thief.call(call, 5.0)
        await thief.cast(Heartbeat(node=node, incarnation=1))

        async def named() -> bool:
            lines = [line for line in logged if line["event"] == "agent refused"]
            return bool({line["host"] for line in lines} == {other}) and any(
                "Heartbeat" in one["reason"] for one in lines
            )

        await eventually(named, "the log names who it was")
    await unchanged(cloud, uuid, host)


async def test_nobody_but_the_conductors_of_its_cell_can_order_an_agent(cloud: Cloud, bus: OpenBus) -> None:
    uuid, host = await built(cloud)
    other = next(name for name in cloud.plane.agents if name != host)
    address = compute(cell_of(cloud).uuid, host)
    orders: list[Any] = [
        TerminateInstance(context=context(), instance=uuid, attempt=9),
        ChangePower(context=context(), instance=uuid, attempt=1, task=Task.POWERING_OFF, task_id="forged"),
    ]
    with structlog.testing.capture_logs() as logged:
        for order in orders:
            await bus.cast(address, order)
        for_other = [data for at, data in bus.heard_at("compute") if at.endswith(other)]
        for data in for_other:
            await bus.deliver(address, data)

        async def refused() -> bool:
            lines = [line for line in logged if line["event"] == "order refused"]
            return len([line for line in lines if line["host"] == host]) >= 2

        await eventually(refused, "the agent says what it does not do")
    await unchanged(cloud, uuid, host)


async def test_sessions_go_on_with_a_conductor_that_is_started_anew_and_with_a_second_one(
    cloud: Cloud, bus: OpenBus
) -> None:
    uuid, host = await built(cloud)
    plane, cell = cloud.plane, cell_of(cloud)
    first = plane._conductor_of[cell.uuid]
    second = make_cell_conductor(plane.process, cell, plane.databases.cells["cell1"], transport=bus, above=bus)
    await second.start()
    both = [(await built(cloud))[0] for _ in range(3)]
    await first.stop()
    third = make_cell_conductor(plane.process, cell, plane.databases.cells["cell1"], transport=bus, above=bus)
    await third.start()
    await second.stop()
    for one in both:
        await cloud.delete(one)
    await cloud.gone(both)
    another, _ = await built(cloud)
    assert all(agent.incarnation == 1 for agent in await plane.databases.cells["cell1"].read(agents.list_all))
    await cloud.delete(another)
    await cloud.gone([another])
    await unchanged(cloud, uuid, host)
    await third.stop()


async def test_an_agent_believes_no_conductor_without_the_key_of_its_cell(cloud: Cloud, bus: OpenBus) -> None:
    host = next(iter(cloud.plane.agents))
    thief = thief_of(cloud, bus, host)
    with pytest.raises(SkepError, match="not registered"):
        await thief.call(MayBuild(instance=InstanceUuid("i"), attempt=1, host=host), 5.0)
    thief._cell_key = b"k" * 32
    with pytest.raises(SkepError, match="another key than the cell's"):
        await thief.call(RegisterAgent(identity=None), 5.0)  # type: ignore[arg-type]


async def test_a_host_that_does_not_believe_its_conductors_does_not_count_as_living(cloud: Cloud, bus: OpenBus) -> None:
    thief = thief_of(cloud, bus, "stranger")
    thief._cell_key = b"k" * 32
    for _ in range(2):
        with pytest.raises(SkepError, match="another key than the cell's"):
            await thief.call(RegisterAgent(identity=None), 5.0)  # type: ignore[arg-type]
    known = await cloud.plane.databases.cells["cell1"].read(agents.list_all)
    [stranger] = [agent for agent in known if agent.host == "stranger"]
    hearing = cloud.plane._conductor_of[cell_of(cloud).uuid]._hosts.hearing
    assert not hearing.heard_since(stranger.node, 0)
    assert all(hearing.heard_since(agent.node, 0) for agent in known if agent is not stranger)


async def test_a_retired_host_speaks_no_more(cloud: Cloud, bus: OpenBus) -> None:
    agent = next(iter(cloud.plane.agents.values()))
    [row] = [one for one in await cloud.plane.databases.cells["cell1"].read(agents.list_all) if one.node == agent.node]
    assert await cloud.plane.databases.cells["cell1"].write(
        partial(agents.retire, node=agent.node, process=row.process)
    )
    conductor = make_cell_conductor(
        cloud.plane.process, cell_of(cloud), cloud.plane.databases.cells["cell1"], transport=bus, above=bus
    )
    await cloud.plane._conductor_of[cell_of(cloud).uuid].stop()
    await conductor.start()
    call = AgentCall(node=agent.node, incarnation=1, number=1, at=1, sealed=b"whatever")
    with pytest.raises(NotFound):
        await bus.call(cell_conductor(cell_of(cloud).uuid), call)
    await conductor.stop()
