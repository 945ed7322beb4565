"""What a cell's hosts are told when the level above misbehaves."""

from __future__ import annotations

import asyncio
import dataclasses
from functools import partial

import pytest
from msgspec.structs import replace

from skep.cell_conductor.hearing import SILENT_SECONDS
from skep.cell_conductor.hosts import Hosts
from skep.cell_conductor.parts import Parts
from skep.contracts.eventually import PATIENCE, eventually
from skep.database.cell import agents
from skep.domain.context import RequestContext
from skep.domain.errors import NotFound, SkepError, StaleAgent, TooLarge
from skep.domain.hosts import AgentIdentity, HostUsage
from skep.domain.ids import Incarnation, NodeUuid
from skep.domain.resources import Inventory
from skep.messages.to_cell_conductor import Heartbeat, RegisterAgent, Registration, ReportHost
from skep.messages.to_compute import ReportHostNow
from skep.messages.to_scheduler import ReportAnswer, UpdateHostState, UpdateHostStateReply
from skep.transport.base import compute, scheduler_for
from skep.transport.memory import MemoryTransport
from skep.transport.speaker import Speaker, speaking

NODES = tuple(NodeUuid(f"node-{number}") for number in range(3))


def report_of(node: NodeUuid) -> ReportHost:
    usage = HostUsage(host=node.replace("node", "host"), inventory={"VCPU": Inventory(total=4)}, used={})
    return ReportHost(node=node, incarnation=1, seq=1, usage=usage)


async def registered(hosts: Hosts, identity: AgentIdentity) -> Registration:
    """Register an agent that the transport vouches for, as inside one process."""
    with speaking(Speaker(identity.node, identity.host, None)):
        return await hosts.register(RegisterAgent(identity=identity), None)


async def test_every_report_of_a_batch_is_answered_whatever_the_scheduler_says(parts: Parts) -> None:
    async def one_answer_too_few(message: UpdateHostState, _context: RequestContext | None) -> UpdateHostStateReply:
        assert message.reports
        return UpdateHostStateReply(answers=(), epoch="e")

    subscription = await parts.above.serve(scheduler_for(parts.cell.uuid), {UpdateHostState: one_answer_too_few})
    hosts = Hosts(parts)
    for node in NODES:
        identity = AgentIdentity(node=node, host=node.replace("node", "host"), process=Incarnation("p"))
        await registered(hosts, identity)
    hosts.reporting.start()
    async with asyncio.timeout(PATIENCE):
        answers = await asyncio.gather(*(hosts.report(report_of(node), None) for node in NODES), return_exceptions=True)
    assert [type(answer) for answer in answers] == [SkepError] * len(NODES)
    await hosts.reporting.stop()
    await subscription.close()


async def conducting(parts: Parts, answer: ReportAnswer) -> Hosts:
    """Return the hosts of a cell whose scheduler answers each report alike; node-0 has registered."""

    async def update(message: UpdateHostState, _context: RequestContext | None) -> UpdateHostStateReply:
        answers = tuple(replace(answer, node=report.node) for report in message.reports)
        return UpdateHostStateReply(answers=answers, epoch="e")

    await parts.above.serve(scheduler_for(parts.cell.uuid), {UpdateHostState: update})
    hosts = Hosts(parts)
    identity = AgentIdentity(node=NODES[0], host="host-0", process=Incarnation("p"))
    await registered(hosts, identity)
    hosts.reporting.start()
    return hosts


async def test_an_agent_whose_number_was_given_before_gets_a_higher_one(parts: Parts) -> None:
    hosts = await conducting(parts, ReportAnswer(node=NODES[0], stale=True, younger=7))
    async with asyncio.timeout(PATIENCE):
        answer = await hosts.report(report_of(NODES[0]), None)
    assert (answer.incarnation, answer.fenced) == (8, False)
    agent = await parts.database.read(partial(agents.get, node=NODES[0]))
    assert agent is not None
    assert agent.incarnation == 8
    await hosts.reporting.stop()


async def test_an_agent_that_is_older_than_the_row_is_fenced_and_that_is_stored(parts: Parts) -> None:
    hosts = await conducting(parts, ReportAnswer(node=NODES[0]))
    await parts.database.write(
        partial(agents.register, identity=AgentIdentity(node=NODES[0], host="host-0", process=Incarnation("q")), now=5)
    )
    await hosts.heartbeat(Heartbeat(node=NODES[0], incarnation=2), None)
    async with asyncio.timeout(PATIENCE):
        assert (await hosts.report(report_of(NODES[0]), None)).fenced
    agent = await parts.database.read(partial(agents.get, node=NODES[0]))
    assert agent is not None
    assert (agent.incarnation, agent.stale_incarnation) == (2, 1)
    await hosts.reporting.stop()


async def test_only_the_youngest_agent_of_a_host_is_listened_to(parts: Parts) -> None:
    hosts = await conducting(parts, ReportAnswer(node=NODES[0]))
    identity = AgentIdentity(node=NODES[0], host="host-0", process=Incarnation("q"))
    await registered(hosts, identity)
    speaker = Speaker(NODES[0], "host-0", 1)
    with pytest.raises(StaleAgent):
        await hosts.check_current(speaker)
    await hosts.check_current(replace(speaker, incarnation=2))
    with pytest.raises(StaleAgent):
        await parts.database.read(partial(agents.check_current, host="host-0", incarnation=1))
    await hosts.reporting.stop()


async def test_an_agent_that_has_not_said_which_orders_it_takes_is_asked_to_once_a_run(parts: Parts) -> None:
    hosts = await conducting(parts, ReportAnswer(node=NODES[0]))
    async with asyncio.timeout(PATIENCE):
        answers = [await hosts.report(report_of(NODES[0]), None) for _ in range(3)]
        assert [answer.understood for answer in answers] == [False, True, True]
        await registered(hosts, AgentIdentity(node=NODES[0], host="host-0", process=Incarnation("q")))
        assert not (await hosts.report(replace(report_of(NODES[0]), incarnation=2), None)).understood
    await hosts.reporting.stop()


async def test_orders_that_an_agent_named_to_another_conductor_are_known_here(parts: Parts) -> None:
    hosts, identity = (
        await conducting(parts, ReportAnswer(node=NODES[0])),
        AgentIdentity(node=NODES[0], host="host-0", process=Incarnation("p")),
    )
    await parts.database.write(partial(agents.register, identity=identity, now=5, understands=["RunAction"]))
    async with asyncio.timeout(PATIENCE):
        assert (await hosts.report(report_of(NODES[0]), None)).understood
    await hosts.reporting.stop()


async def test_a_host_whose_report_was_for_another_epoch_is_told_to_report(parts: Parts) -> None:
    hosts = await conducting(parts, ReportAnswer(node=NODES[0]))
    told: list[ReportHostNow] = []

    async def report_now(message: ReportHostNow, _context: RequestContext | None) -> None:
        told.append(message)

    subscription = await parts.transport.serve(compute(parts.cell.uuid, "host-0"), {ReportHostNow: report_now})
    hosts.epoch = "new"
    for epoch in (None, "new", "old"):
        await hosts.heartbeat(Heartbeat(node=NODES[0], incarnation=1, epoch=epoch), None)
    await subscription.close()
    assert len(told) == 1
    await hosts.reporting.stop()


async def test_reports_that_no_message_holds_together_go_in_halves(parts: Parts) -> None:
    sizes: list[int] = []

    async def update(message: UpdateHostState, _context: RequestContext | None) -> UpdateHostStateReply:
        sizes.append(len(message.reports))
        if len(message.reports) > 1:
            raise TooLarge("too much for one message")
        answers = tuple(ReportAnswer(node=report.node) for report in message.reports)
        return UpdateHostStateReply(answers=answers, epoch="e")

    await parts.above.serve(scheduler_for(parts.cell.uuid), {UpdateHostState: update})
    hosts = Hosts(parts)
    for node in NODES:
        identity = AgentIdentity(node=node, host=node.replace("node", "host"), process=Incarnation("p"))
        await registered(hosts, identity)
    asked = [asyncio.create_task(hosts.report(report_of(node), None)) for node in NODES]
    hosts.reporting.start()
    async with asyncio.timeout(PATIENCE):
        answers = await asyncio.gather(*asked)
    assert [answer.error for answer in answers] == [None] * len(NODES)
    assert sizes.count(1) == len(NODES)
    await hosts.reporting.stop()


async def test_a_conductor_that_did_not_hear_of_a_retirement_takes_who_came_back_for_the_youngest(parts: Parts) -> None:
    hosts, other = Hosts(parts), Hosts(parts)
    identity = AgentIdentity(node=NODES[0], host="host-0", process=Incarnation("first"))
    await registered(hosts, identity)
    await registered(hosts, replace(identity, process=Incarnation("second")))
    assert await parts.database.write(partial(agents.retire, node=NODES[0], process="second"))
    with pytest.raises(NotFound):
        await hosts.heartbeat(Heartbeat(node=NODES[0], incarnation=3), None)
    back = await registered(other, replace(identity, process=Incarnation("third")))
    assert (back.incarnation, back.mapped) == (3, False), "schedulers remember the second"
    await hosts.heartbeat(Heartbeat(node=NODES[0], incarnation=3), None)
    agent = await parts.database.read(partial(agents.get, node=NODES[0]))
    assert agent is not None
    assert (agent.incarnation, agent.stale_incarnation) == (3, None)


async def test_who_registered_since_is_not_forgotten_but_mapped_anew(parts: Parts) -> None:
    hosts = Hosts(parts)
    identity = AgentIdentity(node=NODES[0], host="host-0", process=Incarnation("second"))
    await registered(hosts, identity)
    await parts.database.write(partial(agents.mark_mapped, nodes=[NODES[0]]))
    assert not await parts.database.write(partial(agents.retire, node=NODES[0], process="first"))
    [unmapped] = await parts.database.read(agents.unmapped)
    assert (unmapped.node, unmapped.process) == (NODES[0], "second")


class Wire(MemoryTransport):
    """A transport whose connection can be lost and made anew."""

    connected = True
    reconnects = 0


class Watch:
    """A monotonic clock that is told how late it is."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def watch() -> Watch:
    return Watch()


async def hosts_that_are_heard(parts: Parts, wire: Wire, watch: Watch) -> Hosts:
    hosts = Hosts(dataclasses.replace(parts, transport=wire), monotonic=watch)
    for node in NODES:
        identity = AgentIdentity(node=node, host=node.replace("node", "host"), process=Incarnation("p"))
        await registered(hosts, identity)
    assert await hosts.knows_who_lives()
    return hosts


async def beat_of(hosts: Hosts, *nodes: NodeUuid) -> None:
    for node in nodes:
        await hosts.heartbeat(Heartbeat(node=node, incarnation=1), None)


async def test_who_was_not_heard_while_messaging_was_away_is_not_silent(parts: Parts, watch: Watch) -> None:
    wire = Wire()
    hosts = await hosts_that_are_heard(parts, wire, watch)
    wire.connected = False
    watch.now += 1
    assert not await hosts.knows_who_lives()
    watch.now += 60
    wire.connected, wire.reconnects = True, 1
    assert not await hosts.knows_who_lives()
    watch.now += 1
    await beat_of(hosts, *NODES[:2])
    assert not await hosts.knows_who_lives()
    await beat_of(hosts, NODES[2])
    assert await hosts.knows_who_lives()


async def test_a_host_that_stays_silent_after_an_outage_is_silent_in_the_end(parts: Parts, watch: Watch) -> None:
    wire = Wire()
    hosts = await hosts_that_are_heard(parts, wire, watch)
    wire.reconnects += 1
    for _ in range(round(SILENT_SECONDS)):
        watch.now += 1
        assert not await hosts.knows_who_lives()
        await beat_of(hosts, *NODES[:2])
    watch.now += 2
    assert await hosts.knows_who_lives()


async def test_a_conductor_that_stood_still_listens_first(parts: Parts, watch: Watch) -> None:
    hosts = await hosts_that_are_heard(parts, Wire(), watch)
    watch.now += SILENT_SECONDS + 1
    assert not await hosts.knows_who_lives()
    await beat_of(hosts, *NODES)
    assert await hosts.knows_who_lives()


async def looked(hosts: Hosts, watch: Watch) -> None:
    """Have the loop look that waits for no scheduler."""

    async def has_looked() -> bool:
        return hosts.listening._looked_at == watch.now

    hosts.watching.nudge()
    await eventually(has_looked, "it looks")


async def test_a_scheduler_that_is_waited_for_is_no_standstill(parts: Parts, watch: Watch) -> None:
    """Hosts are heard meanwhile."""
    hosts = await hosts_that_are_heard(parts, Wire(), watch)
    hosts.watching.start()
    for _ in range(round(SILENT_SECONDS) + 1):
        watch.now += 1
        await looked(hosts, watch)
    assert await hosts.knows_who_lives()
    await hosts.watching.stop()


async def test_a_conductor_that_stood_still_while_it_waited_for_a_scheduler_listens_first(
    parts: Parts, watch: Watch
) -> None:
    hosts = await hosts_that_are_heard(parts, Wire(), watch)
    hosts.watching.start()
    watch.now += SILENT_SECONDS + 1
    await looked(hosts, watch)
    watch.now += 1
    assert not await hosts.knows_who_lives()
    await beat_of(hosts, *NODES)
    assert await hosts.knows_who_lives()
    await hosts.watching.stop()
