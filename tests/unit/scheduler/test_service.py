"""The service over the memory transport and the memory backend."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from skep.domain.builds import Decision, NotReady, NoValidHost, Placed
from skep.domain.cells import Cell, HostIntent
from skep.domain.claims import Claim, ClaimKey
from skep.domain.clock import Clock
from skep.domain.guest_keys import KeyRule, RefusedKeys
from skep.domain.ids import CellUuid, InstanceUuid, NodeUuid
from skep.domain.resources import Inventory
from skep.messages.to_scheduler import (
    AggregatePage,
    AssertClaims,
    AssertReply,
    GetHostStates,
    HostReport,
    ListNamespaces,
    Member,
    PublishOperatorState,
    ReleaseClaims,
    ReleaseSlots,
    SelectDestinations,
    Slot,
    UpdateHostState,
)
from skep.messages.to_scheduler_liveness import Beat
from skep.placement.settings import SchedulerSettings
from skep.scheduler.service import SchedulerService
from skep.synchronizer.memory import MemoryBackend
from skep.transport.base import SCHEDULER
from skep.transport.memory import MemoryTransport

ONE, TWO = CellUuid("cell-1"), CellUuid("cell-2")


class Cloud:
    """A backend, a scheduler or two, and cells whose hosts are called h0, h1, ...; even ones are in the first cell."""

    def __init__(self, usage: Any, spec: Any) -> None:
        self.transport = MemoryTransport()
        self.backend = MemoryBackend()
        self.usage = usage
        self.spec = spec
        self.now = 0.0
        self.noted: list[str] = []
        self.services: list[SchedulerService] = []
        self.hosts: list[HostIntent] = []
        self.seq = 0

    async def start(self, schedulers: int = 1) -> None:
        for _ in range(schedulers):
            service = SchedulerService(
                self.transport,
                self.backend,
                SchedulerSettings(),
                Clock(),
                on_decision=lambda _, outcome: self.noted.append(outcome),
                monotonic=lambda: self.now,
            )
            await service.start()
            self.services.append(service)

    async def stop(self) -> None:
        for service in self.services:
            await service.stop()

    async def call(self, message: Any) -> Any:
        return await self.transport.call(SCHEDULER, message)

    def wishes(self, hosts: int, **changes: Any) -> None:
        self.hosts = [
            HostIntent(node=NodeUuid(f"n{n}"), host=f"h{n}", cell=(ONE, TWO)[n % 2], **changes) for n in range(hosts)
        ]

    async def publish(self, *aggregates: AggregatePage, disabled: tuple[str, ...] = ()) -> None:
        cells = tuple(Cell(uuid=cell, name=cell, disabled=cell in disabled) for cell in (ONE, TWO))
        await self.call(PublishOperatorState(hosts=tuple(self.hosts), aggregates=aggregates, cells=cells))

    async def beat(self, *cells: CellUuid, without: tuple[str, ...] = ()) -> None:
        for cell in cells or (ONE, TWO):
            heard = tuple(wish.node for wish in self.hosts if wish.cell == cell and wish.node not in without)
            await self.call(Beat(cell=cell, heard=heard))

    async def assert_claims(self, cell: CellUuid, *claims: Claim, slots: tuple[Slot, ...] = ()) -> AssertReply:
        epoch = await self.backend.epoch()
        reply: AssertReply = await self.call(AssertClaims(cell=cell, epoch=epoch, claims=claims, slots=slots))
        return reply

    async def report(self, host: int, settled: tuple[ClaimKey, ...] = (), **usage: Any) -> Any:
        self.seq += 1
        wish = self.hosts[host]
        report = HostReport(
            node=wish.node,
            cell=wish.cell,
            incarnation=usage.pop("incarnation", 1),
            seq=usage.pop("seq", self.seq),
            usage=self.usage(wish.host, **usage),
            settled=settled,
        )
        return (await self.call(UpdateHostState(reports=(report,)))).answers[0]

    async def ready(self, hosts: int = 4, schedulers: int = 1, **usage: Any) -> None:
        await self.start(schedulers)
        self.wishes(hosts)
        await self.publish()
        await self.beat()
        for cell in (ONE, TWO):
            await self.assert_claims(cell)
        for host in range(hosts):
            await self.report(host, **usage)
        await self.settle()

    async def settle(self) -> None:
        """Let every scheduler read what the others wrote."""
        for service in self.services:
            await service._mirror.catch_up()  # what its own task does some turns of the loop later

    async def select(self, *instances: str, attempt: int = 1, **facts: Any) -> list[Decision]:
        spec = facts.pop("spec", None) or self.spec()
        members = tuple(Member(InstanceUuid(instance), attempt) for instance in instances or ("i",))
        return list((await self.call(SelectDestinations(spec=spec, members=members, **facts))).decisions)

    async def claims(self) -> list[tuple[str, int, str]]:
        await self.settle()
        states = (await self.call(GetHostStates())).hosts
        return [(claim.instance, claim.attempt, claim.node) for state in states for claim in state.claims]


@pytest.fixture
async def cloud(usage: Any, spec: Any) -> AsyncIterator[Cloud]:
    cloud = Cloud(usage, spec)
    yield cloud
    await cloud.stop()


def key_of(placed: Decision, instance: str = "i", attempt: int = 1, group: Any = None) -> ClaimKey:
    assert isinstance(placed, Placed)
    return ClaimKey(InstanceUuid(instance), attempt, placed.node, group)


def claim_of(instance: str, node: str, vcpus: int = 1, **facts: Any) -> Claim:
    return Claim(
        instance=InstanceUuid(instance),
        attempt=facts.pop("attempt", 1),
        node=NodeUuid(node),
        resources={"VCPU": vcpus},
        **facts,
    )


async def test_a_choice_is_claimed_before_it_is_answered(cloud: Cloud) -> None:
    await cloud.ready()
    (placed,) = await cloud.select()
    assert isinstance(placed, Placed)
    assert placed.epoch == await cloud.backend.epoch()
    assert len(placed.alternates) == 1
    assert await cloud.claims() == [("i", 1, placed.node)]
    assert cloud.noted == ["placed"]


async def test_selecting_again_for_the_same_attempt_finds_the_claim(cloud: Cloud) -> None:
    await cloud.ready()
    first, again, other = await cloud.select(), await cloud.select(), await cloud.select(attempt=2)
    assert isinstance(first[0], Placed)
    assert isinstance(again[0], Placed)
    assert (first[0].node, first[0].alternates) == (again[0].node, again[0].alternates)
    assert isinstance(other[0], Placed)
    assert len(await cloud.claims()) == 2


async def test_the_same_attempt_asked_twice_at_once_is_claimed_once(cloud: Cloud) -> None:
    await cloud.ready()
    answers = await asyncio.gather(*(cloud.select() for _ in range(5)))
    assert len({answer[0].node for answer in answers if isinstance(answer[0], Placed)}) == 1
    assert len(await cloud.claims()) == 1


async def test_a_dry_run_claims_nothing(cloud: Cloud) -> None:
    await cloud.ready()
    (placed,) = await cloud.select(dry_run=True)
    assert isinstance(placed, Placed)
    assert await cloud.claims() == []


async def test_a_dry_run_knows_what_its_own_members_would_take(
    cloud: Cloud, spec: Any, flavor: Any, group: Any
) -> None:
    await cloud.ready(hosts=2, memory_mb=512 + 1024)
    wishes = (spec(flavor=flavor(memory_mb=1024)), spec(group=group("anti-affinity")))
    for wanted in wishes:
        decisions = await cloud.select("a", "b", "c", spec=wanted, dry_run=True)
        assert [type(decision) for decision in decisions] == [Placed, Placed, NoValidHost]
    assert await cloud.claims() == []
    assert (await cloud.call(ListNamespaces())).namespaces["groups"] == 0


async def test_members_are_spread_and_those_that_do_not_fit_say_why(cloud: Cloud, spec: Any, flavor: Any) -> None:
    await cloud.ready(hosts=2, memory_mb=512 + 1024)
    decisions = await cloud.select("a", "b", "c", spec=spec(flavor=flavor(memory_mb=1024)))
    assert [type(decision) for decision in decisions] == [Placed, Placed, NoValidHost]
    assert len({decision.node for decision in decisions if isinstance(decision, Placed)}) == 2
    assert isinstance(decisions[2], NoValidHost)
    assert decisions[2].message() == (
        "No valid host: 2 hosts considered; 0 left by capacity (nearest miss lacks 1024 MEMORY_MB); "
        "2 hosts could hold it if empty, up and enabled"
    )
    assert cloud.noted == ["partly_placed"]


async def test_fewer_than_the_minimum_means_none(cloud: Cloud, spec: Any, flavor: Any) -> None:
    await cloud.ready(hosts=2, memory_mb=512 + 1024)
    decisions = await cloud.select("a", "b", "c", spec=spec(flavor=flavor(memory_mb=1024)), min_count=3)
    assert all(isinstance(decision, NoValidHost) for decision in decisions)
    assert isinstance(decisions[0], NoValidHost)
    assert decisions[0].message().startswith("No valid host: 2 of at least 3 servers fit, so none was placed")
    assert decisions[0].explanation.beside == 2
    assert await cloud.claims() == []
    assert len(await cloud.select("a", "b", spec=spec(flavor=flavor(memory_mb=1024)), min_count=2)) == 2


async def test_a_minimum_that_is_no_longer_met_gives_back_what_an_earlier_call_claimed(
    cloud: Cloud, spec: Any, flavor: Any
) -> None:
    await cloud.ready(hosts=2, memory_mb=512 + 1024)
    wanted = spec(flavor=flavor(memory_mb=1024))
    await cloud.select("a", spec=wanted)
    decisions = await cloud.select("a", "b", "c", spec=wanted, min_count=3)
    assert not any(isinstance(decision, Placed) for decision in decisions)
    assert await cloud.claims() == []


async def test_before_the_operator_spoke_nobody_says_that_there_is_no_host(cloud: Cloud) -> None:
    await cloud.start()
    (decision,) = await cloud.select()
    assert decision == NotReady(reason="the operator's settings are not known yet")
    assert cloud.noted == ["not_ready"]


async def test_a_cell_that_has_not_asserted_is_waited_for(cloud: Cloud) -> None:
    await cloud.start()
    cloud.wishes(2)
    await cloud.publish()
    await cloud.beat()
    for host in (0, 1):
        await cloud.report(host)
    assert isinstance((await cloud.select())[0], NotReady)
    await cloud.assert_claims(ONE)
    (placed,) = await cloud.select()
    assert isinstance(placed, Placed)
    assert placed.host == "h0"
    assert isinstance((await cloud.select("j", ignore=(NodeUuid("n0"),)))[0], NotReady)
    assert isinstance((await cloud.select("j", cell=ONE, ignore=(NodeUuid("n0"),)))[0], NoValidHost)
    assert isinstance((await cloud.select("j", exclude_cells=(TWO,), ignore=(NodeUuid("n0"),)))[0], NoValidHost)


async def test_a_cell_whose_beat_lapsed_is_waited_for_and_its_hosts_are_no_candidates(cloud: Cloud) -> None:
    await cloud.ready(hosts=2)
    cloud.now = 9.0
    await cloud.beat(ONE)
    cloud.now = 15.0
    assert {state.node: state.up for state in (await cloud.call(GetHostStates())).hosts} == {"n0": True, "n1": False}
    assert [type(decision) for decision in await cloud.select(*"abcdef")] == [Placed] * 6
    assert {node for _, _, node in await cloud.claims()} == {"n0"}
    assert isinstance((await cloud.select(cell=TWO))[0], NotReady)
    await cloud.beat(TWO)
    assert isinstance((await cloud.select(cell=TWO))[0], Placed)


async def test_a_full_host_of_a_silent_cell_is_not_waited_for(cloud: Cloud, spec: Any, flavor: Any) -> None:
    await cloud.ready(hosts=2)
    cloud.now = 100.0
    await cloud.beat(ONE)
    assert isinstance((await cloud.select(spec=spec(flavor=flavor(vcpus=17))))[0], NoValidHost)


async def test_a_host_that_the_beat_omits_is_no_candidate_and_not_waited_for(cloud: Cloud) -> None:
    await cloud.ready(hosts=1)
    await cloud.beat(without=("n0",))
    (decision,) = await cloud.select()
    assert isinstance(decision, NoValidHost)
    assert decision.message() == (
        "No valid host: 1 host considered; 0 left by being up and enabled; "
        "it would fit on a host that is down or disabled; 1 host could hold it if empty, up and enabled"
    )


async def test_a_heard_host_that_has_not_reported_is_waited_for(cloud: Cloud) -> None:
    await cloud.ready(hosts=1)
    cloud.wishes(2)
    await cloud.publish()
    await cloud.beat()
    assert isinstance((await cloud.select(cell=TWO))[0], NotReady)


async def test_a_disabled_cell_gets_no_new_servers_but_keeps_its_own(cloud: Cloud) -> None:
    await cloud.ready(hosts=2)
    await cloud.publish(disabled=(TWO,))
    assert isinstance((await cloud.select(ignore=(NodeUuid("n0"),)))[0], NoValidHost)
    assert isinstance((await cloud.select(cell=TWO))[0], Placed)


async def test_what_the_operator_wants_is_replaced_as_a_whole(cloud: Cloud) -> None:
    await cloud.ready(hosts=2)
    before = (await cloud.backend.snapshot()).cursor
    await cloud.publish()
    assert (await cloud.backend.snapshot()).cursor == before, "nothing differed, nothing is written"
    zone = AggregatePage(id=3, hosts=("h1",), metadata={"availability_zone": "east"})
    cloud.wishes(2, disabled=True, disabled_reason="broken")
    await cloud.publish(zone)
    states = (await cloud.call(GetHostStates())).hosts
    assert [(state.zone, state.aggregates) for state in states] == [("nova", ()), ("east", (3,))]
    assert {(state.disabled, state.disabled_reason) for state in states} == {(True, "broken")}
    cloud.wishes(1)
    await cloud.publish()
    (state,) = (await cloud.call(GetHostStates())).hosts
    assert (state.node, state.zone, state.disabled) == ("n0", "nova", False)


async def test_a_report_never_overrides_the_operator(cloud: Cloud) -> None:
    await cloud.ready(hosts=1)
    cloud.wishes(1, forced_down=True)
    await cloud.publish()
    await cloud.report(0)
    await cloud.beat()
    (state,) = (await cloud.call(GetHostStates())).hosts
    assert (state.forced_down, state.up) == (True, False)


async def test_settled_claims_go_as_the_usage_comes(cloud: Cloud) -> None:
    await cloud.ready(hosts=1)
    (placed,) = await cloud.select()
    await cloud.select("j")
    answer = await cloud.report(0)
    assert {key.instance for key in answer.claims} == {"i", "j"}
    answer = await cloud.report(0, settled=(key_of(placed),), used={"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 1})
    assert [key.instance for key in answer.claims] == ["j"]
    (state,) = (await cloud.call(GetHostStates())).hosts
    assert state.usage.used["VCPU"] == 1
    assert [claim.instance for claim in state.claims] == ["j"]


async def test_an_older_report_is_refused(cloud: Cloud) -> None:
    await cloud.ready(hosts=1)
    (placed,) = await cloud.select()
    for incarnation, seq, stale in ((2, 5, False), (2, 4, True), (1, 9, True), (2, 5, False), (3, 1, False)):
        answer = await cloud.report(0, incarnation=incarnation, seq=seq, servers=0)
        assert answer.stale is stale
        assert answer.claims == (key_of(placed),)
    (state,) = (await cloud.call(GetHostStates())).hosts
    assert (state.incarnation, state.seq) == (3, 1)


def inventory_of(**changes: Any) -> dict[str, Inventory]:
    return {"VCPU": Inventory(**{"total": 4, **changes})}


@pytest.mark.parametrize(
    ("facts", "field"),
    [
        ({"inventory": {}}, "usage.inventory: missing"),
        ({"inventory": inventory_of(total=-1)}, "usage.inventory.VCPU.total"),
        ({"inventory": inventory_of(total=2**40)}, "usage.inventory.VCPU.total"),
        ({"inventory": inventory_of(reserved=-1)}, "usage.inventory.VCPU.reserved"),
        ({"inventory": inventory_of(allocation_ratio=float("nan"))}, "usage.inventory.VCPU.allocation_ratio"),
        ({"inventory": inventory_of(allocation_ratio=0.0)}, "usage.inventory.VCPU.allocation_ratio"),
        ({"inventory": inventory_of(allocation_ratio=float("inf"))}, "usage.inventory.VCPU.allocation_ratio"),
        ({"inventory": {"MY_CLASS": Inventory(total=1)}}, "usage.inventory.MY_CLASS"),
        ({"used": {"VCPU": -1}}, "usage.used.VCPU"),
        ({"used": {"vcpu": 1}}, "usage.used.vcpu"),
        ({"servers": 3}, "usage.used: missing"),
        ({"failed_builds": -1}, "usage.failed_builds"),
        ({"traits": ("lower",)}, "usage.traits"),
        ({"seq": -1}, "seq"),
        ({"traits": ("X",) * 2001}, "usage.traits: more than"),
        ({"refused_keys": RefusedKeys(properties=(KeyRule("hw_x"),) * 257)}, "usage.refused_keys: more than"),
        (
            {"refused_keys": RefusedKeys(extra_specs=(KeyRule("hw:x", ("v",) * 257),))},
            "usage.refused_keys: 'hw:x' has more than",
        ),
        (
            {"refused_keys": RefusedKeys(extra_specs=(KeyRule("hw:x", ("v" * 256,)),))},
            "usage.refused_keys: at most 255",
        ),
    ],
)
async def test_nonsense_is_refused_by_name_and_changes_nothing(cloud: Cloud, facts: Any, field: str) -> None:
    await cloud.ready(hosts=1)
    before = (await cloud.call(GetHostStates())).hosts
    answer = await cloud.report(0, **facts)
    assert answer.error is not None
    assert answer.error.startswith(field)
    (after,) = (await cloud.call(GetHostStates())).hosts
    assert replace(after, refused=None, generation=before[0].generation) == before[0]
    if field != "seq":
        assert after.refused is not None
        assert after.refused.reason == answer.error
    assert isinstance((await cloud.select())[0], Placed), "the last good report stays in force"
    assert (await cloud.report(0)).error is None
    assert (await cloud.call(GetHostStates())).hosts[0].refused is None


async def test_a_custom_class_is_no_nonsense(cloud: Cloud) -> None:
    await cloud.ready(hosts=1)
    answer = await cloud.report(0, inventory={**inventory_of(), "CUSTOM_FPGA": Inventory(total=2)})
    assert answer.error is None


async def test_a_report_from_another_cell_is_refused(cloud: Cloud) -> None:
    await cloud.ready(hosts=1)
    cloud.hosts[0] = HostIntent(node=NodeUuid("n0"), host="h0", cell=TWO)
    answer = await cloud.report(0)
    assert answer.error == "cell: the node is mapped to cell cell-1, the report is from cell-2"


async def test_releasing(cloud: Cloud) -> None:
    await cloud.ready(hosts=1)
    (placed,) = await cloud.select()
    assert (await cloud.call(ReleaseClaims(claims=(key_of(placed, attempt=2),)))).released == 0
    assert (await cloud.call(ReleaseClaims(claims=(key_of(placed),)))).released == 1
    assert (await cloud.call(ReleaseClaims(claims=(key_of(placed),)))).released == 0
    assert await cloud.claims() == []


async def test_a_hard_policy_holds_through_slots(cloud: Cloud, spec: Any, group: Any) -> None:
    await cloud.ready(hosts=2)
    wanted = spec(group=group("anti-affinity"))
    decisions = await cloud.select("a", "b", "c", spec=wanted)
    assert [type(decision) for decision in decisions] == [Placed, Placed, NoValidHost]
    first = decisions[0]
    assert isinstance(first, Placed)
    key = key_of(first, "a", group=wanted.group.uuid)
    host = int(first.host[1])
    await cloud.report(host, settled=(key,), used={"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 1})
    assert isinstance((await cloud.select("c", spec=wanted))[0], NoValidHost), "the slot outlives the claim"
    assert (await cloud.call(ReleaseSlots(slots=(key,)))).released == 1
    (third,) = await cloud.select("c", spec=wanted)
    assert isinstance(third, Placed)
    assert third.node == first.node


async def test_releasing_a_claim_frees_its_slot(cloud: Cloud, spec: Any, group: Any) -> None:
    await cloud.ready(hosts=1)
    wanted = spec(group=group("anti-affinity"))
    (placed,) = await cloud.select(spec=wanted)
    assert (await cloud.call(ReleaseClaims(claims=(key_of(placed),)))).released == 2
    assert (await cloud.call(ListNamespaces())).namespaces["groups"] == 0
    assert isinstance((await cloud.select("j", spec=wanted))[0], Placed)


async def test_affinity_puts_all_members_on_one_host(cloud: Cloud, spec: Any, group: Any) -> None:
    await cloud.ready(hosts=4)
    decisions = await cloud.select("a", "b", "c", spec=spec(group=group("affinity")))
    assert len({decision.node for decision in decisions if isinstance(decision, Placed)}) == 1
    (late,) = await cloud.select("d", spec=spec(group=group("affinity")))
    assert isinstance(late, Placed)
    assert isinstance(decisions[0], Placed)
    assert late.node == decisions[0].node


async def test_a_hard_policy_waits_for_cells_that_may_hold_members(cloud: Cloud, spec: Any, group: Any) -> None:
    await cloud.start()
    cloud.wishes(2)
    await cloud.publish()
    await cloud.beat()
    await cloud.report(0)
    await cloud.assert_claims(ONE)
    wanted = spec(group=group("anti-affinity"))
    (decision,) = await cloud.select(spec=wanted)
    assert decision == NotReady(reason="the members of the server group are not all known yet")
    slot = Slot(key=ClaimKey(InstanceUuid("m"), 1, NodeUuid("n0"), wanted.group.uuid), policy="anti-affinity")
    await cloud.assert_claims(TWO, slots=(slot,))
    assert isinstance((await cloud.select(spec=wanted, cell=ONE))[0], NoValidHost)


async def test_a_new_epoch_waits_until_cells_assert_and_hosts_report(cloud: Cloud, spec: Any, flavor: Any) -> None:
    await cloud.ready(hosts=2)
    (placed,) = await cloud.select()
    assert isinstance(placed, Placed)
    old = await cloud.backend.epoch()
    cloud.backend.wipe()
    await cloud.settle()
    assert isinstance((await cloud.select("j"))[0], NotReady)
    await cloud.publish()
    reply = await cloud.call(Beat(cell=ONE, heard=(NodeUuid("n0"),)))
    assert reply.epoch == await cloud.backend.epoch() != old
    assert reply.asserted is False
    assert isinstance((await cloud.select("j"))[0], NotReady)
    assert (await cloud.call(AssertClaims(cell=ONE, epoch=old, claims=()))).epoch == reply.epoch
    assert (await cloud.call(Beat(cell=ONE, heard=(NodeUuid("n0"),)))).asserted is False
    for cell in (ONE, TWO):
        await cloud.assert_claims(cell, *([claim_of("i", placed.node, 16)] if placed.cell == cell else []))
    await cloud.beat()
    assert isinstance((await cloud.select("j"))[0], NotReady), "no host before its own report"
    for host in (0, 1):
        await cloud.report(host)
    (again,) = await cloud.select("j")
    assert isinstance(again, Placed)
    assert again.node != placed.node, "what was asserted is full"


async def test_an_assertion_later_in_an_epoch_must_fit(cloud: Cloud, group: Any) -> None:
    await cloud.ready(hosts=2)
    fits, too_large = claim_of("a", "n0", 16), claim_of("b", "n0", 1)
    reply = await cloud.assert_claims(ONE, fits, too_large)
    assert reply.refused == (ClaimKey(InstanceUuid("b"), 1, NodeUuid("n0")),)
    assert (await cloud.assert_claims(ONE, fits)).refused == ()
    slots = tuple(
        Slot(key=ClaimKey(InstanceUuid(name), 1, NodeUuid("n1"), group("affinity").uuid), policy="anti-affinity")
        for name in "xy"
    )
    assert (await cloud.assert_claims(TWO, slots=slots)).refused == (slots[1].key,)
    assert await cloud.claims() == [("a", 1, "n0")]


@pytest.mark.parametrize("settled_first", [True, False])
async def test_two_schedulers_never_book_twice(cloud: Cloud, spec: Any, flavor: Any, settled_first: bool) -> None:
    await cloud.ready(hosts=2, schedulers=2, memory_mb=512 + 4 * 1024)
    if settled_first:
        await cloud.settle()
    wanted = spec(flavor=flavor(memory_mb=1024))
    answers = await asyncio.gather(*(cloud.select(f"i{number}", spec=wanted) for number in range(12)))
    placed = Counter(answer[0].node for answer in answers if isinstance(answer[0], Placed))
    assert placed == {"n0": 4, "n1": 4}
    assert len(await cloud.claims()) == 8


async def test_two_schedulers_keep_one_group_apart(cloud: Cloud, spec: Any, group: Any) -> None:
    await cloud.ready(hosts=4, schedulers=2)
    wanted = spec(group=group("anti-affinity"))
    answers = await asyncio.gather(*(cloud.select(f"i{number}", spec=wanted) for number in range(6)))
    placed = [answer[0].node for answer in answers if isinstance(answer[0], Placed)]
    assert len(placed) == len(set(placed)) == 4
    assert len(await cloud.claims()) == 4, "the claims of refused slots are not there"


async def test_two_schedulers_keep_one_group_together(cloud: Cloud, spec: Any, group: Any) -> None:
    await cloud.ready(hosts=4, schedulers=2)
    wanted = spec(group=group("affinity"))
    answers = await asyncio.gather(*(cloud.select(f"i{number}", spec=wanted) for number in range(6)))
    assert len({answer[0].node for answer in answers if isinstance(answer[0], Placed)}) == 1
    assert all(isinstance(answer[0], Placed) for answer in answers)


async def test_another_scheduler_releases_what_it_has_not_read_yet(cloud: Cloud) -> None:
    await cloud.ready(hosts=2, schedulers=2)
    for number in range(4):
        (placed,) = await cloud.select(f"i{number}")
        assert (await cloud.call(ReleaseClaims(claims=(key_of(placed, f"i{number}"),)))).released == 1
        await cloud.call(ListNamespaces())
    assert await cloud.claims() == []


async def test_a_scheduler_that_starts_later_knows_all_but_who_lives(cloud: Cloud) -> None:
    await cloud.ready(hosts=2)
    await cloud.select()
    await cloud.services[0].stop()
    await cloud.start()
    assert len(await cloud.claims()) == 1
    assert isinstance((await cloud.select("j"))[0], NotReady), "a beat of unknown age is no sign of life"
    await cloud.beat()
    assert isinstance((await cloud.select("j"))[0], Placed)


async def test_an_epoch_that_ends_while_a_claim_is_written_leaves_no_claim_behind(cloud: Cloud) -> None:
    await cloud.ready(hosts=2)
    cloud.backend.wipe()
    (decision,) = await cloud.select()
    assert isinstance(decision, NotReady)
    assert (await cloud.backend.snapshot()).records == ()


async def test_host_states_are_read_by_node_host_and_cell(cloud: Cloud) -> None:
    await cloud.ready(hosts=4)

    async def nodes(**by: Any) -> list[str]:
        return [state.node for state in (await cloud.call(GetHostStates(**by))).hosts]

    assert await nodes() == ["n0", "n1", "n2", "n3"]
    assert await nodes(cell=TWO) == ["n1", "n3"]
    assert await nodes(hosts=("h1", "h2", "none")) == ["n1", "n2"]
    assert await nodes(nodes=(NodeUuid("n3"),)) == ["n3"]


async def test_namespaces(cloud: Cloud) -> None:
    await cloud.ready(hosts=4)
    assert (await cloud.call(ListNamespaces())).namespaces == {
        "aggregates": 0,
        "beats": 2,
        "cells": 2,
        "compute": 4,
        "groups": 0,
        "hearing": 2,
        "namespaces": 0,
        "operator": 4,
        "schedulers": 1,
    }
