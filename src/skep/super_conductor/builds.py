"""The story of a build above the cells: take, select, stage, map, settle.

One pass takes all servers that wait for a cell (of new requests, and what a dead conductor left), asks the scheduler
once for each request, writes the members into their cells where nobody sees them yet, points their mappings there in
one transaction of the API database, and lets the cells go on. A server without a host goes the same way into cell0.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import TypedDict

import msgspec

from skep.database import Connection
from skep.database.api import instance_mappings as mappings
from skep.database.api.destinations import StagedMember
from skep.database.api.instance_mappings import Mapping, Taken
from skep.database.cell import builds as cell_builds
from skep.database.cell.builds import Staged
from skep.domain.builds import Decision, Explanation, NotReady, NoValidHost, Placed
from skep.domain.claims import ClaimKey
from skep.domain.clock import SECOND
from skep.domain.context import RequestContext
from skep.domain.errors import SkepError, Unavailable
from skep.domain.ids import CELL0, CellUuid, InstanceUuid
from skep.domain.instances import Fault, State
from skep.domain.timelines import Moment
from skep.domain.vifs import Vif
from skep.messages.to_scheduler import Member, ReleaseClaims, SelectDestinations
from skep.neighbours.networks.base import PortsAwaited, PortsRefused, WantedPorts
from skep.neighbours.volumes.base import VolumesRefused
from skep.super_conductor import notifications
from skep.super_conductor.build_volumes import Awaited, BuildVolumes, has_volumes, together, unanswered
from skep.super_conductor.decisions import not_final
from skep.super_conductor.locations import resolved
from skep.super_conductor.parts import Parts
from skep.super_conductor.timelines import settle
from skep.telemetry.logs import get_logger
from skep.transport.base import SCHEDULER

log = get_logger(__name__)

BATCH = 64
"""Servers taken in one pass (more when one request has more members)."""
BATCH_WHEN_BUSY = 8
FEW_REQUESTS = 2
"""So many requests of users may be under way in this process before building makes room for them."""
YIELD_SECONDS = 0.2
"""Building waits no longer than this for them, so that it goes on however many there are."""
AVOID_SECONDS = 5.0
"""How long a cell that could not store is left out of selections."""

RETRY_SECONDS = 0.2
"""How long a server waits that could not be mapped where it was placed."""

NO_PORTS = "Failed to allocate the network(s), not rescheduling."
"""Nova's words for it; what was missing follows."""

NO_VOLUMES = "Build of instance {} aborted: Block Device Mapping is Invalid."
"""Likewise."""

Fate = Placed | NoValidHost | PortsRefused | VolumesRefused
Fated = tuple[Taken, Fate]


class Builds:
    """Places servers that have no cell."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._volumes = BuildVolumes(parts)
        self._avoid: dict[CellUuid, int] = {}

    async def run(self) -> bool:
        """Do one pass; True when there may be more to take."""
        parts = self._parts
        limit = await self._make_room()
        if not await parts.api.read(partial(mappings.any_waiting, owner=parts.owner, now=parts.clock.now())):
            return False
        async with parts.steps.step("take") as step:
            taken, moment = await parts.api.write(partial(self._take, limit=limit))
            parts.advanced(moment)
            step.note(members=len(taken))
            step.serves(one.context for one in taken)
        if not taken:
            return False
        try:
            await self._place(taken)
        except SkepError as error:
            log.warning("selection put off", error=str(error), members=len(taken))
            await self._give_back(taken, seconds=1.0)
        return len(taken) >= limit

    async def _make_room(self) -> int:
        """Let requests of users go first: while several wait, take little, and only now and then. Return how much."""
        for _ in range(10):
            if self._parts.busy() <= FEW_REQUESTS:
                break
            await asyncio.sleep(YIELD_SECONDS / 10)
        return BATCH if self._parts.busy() <= FEW_REQUESTS else BATCH_WHEN_BUSY

    async def _place(self, taken: list[Taken]) -> None:
        """Place members with volumes beside the others, which do not wait for the volume service."""
        beside = [one for one in taken if has_volumes(one)], [one for one in taken if not has_volumes(one)]
        placed = await asyncio.gather(*(self._place_those(some) for some in beside if some), return_exceptions=True)
        for outcome in placed:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _place_those(self, taken: list[Taken]) -> None:
        taken, fated = await self._with_volumes(taken)
        requests = [list(members) for _, members in groupby(taken, key=lambda one: one.context.request_id)]
        answers = await asyncio.gather(*(self._select(members) for members in requests))
        waiting: list[Taken] = []
        for one, decision in (pair for answer in answers for pair in answer):
            if isinstance(decision, NotReady) and not self._too_late(one):
                waiting.append(one)
            elif isinstance(decision, NotReady):
                fated.append((one, _never_ready(decision)))
            else:
                fated.append((one, decision))
        fated = await self._connected(await self._with_ports(fated))
        by_cell: dict[CellUuid, list[Fated]] = {}
        for one, fate in fated:
            by_cell.setdefault(fate.cell if isinstance(fate, Placed) else CELL0, []).append((one, fate))
        # What is claimed goes first and each cell by itself: nothing else may keep a claim from getting its row.
        stored = await asyncio.gather(
            *(self._into_cell(cell, members) for cell, members in by_cell.items()),
            self._wait_on(waiting, seconds=0.5),
            return_exceptions=True,
        )
        for outcome in stored:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _select(self, members: Sequence[Taken]) -> list[tuple[Taken, Decision]]:
        """Ask the scheduler once for all members of a request.

        Whatever keeps it from deciding is "not ready": these members are asked for again, and after their deadline they
        end in cell0 with that reason; all others go on.
        """
        parts, first, avoided = self._parts, members[0], self._avoided()
        async with parts.steps.step(
            "select", request=first.context.request_id, members=len(members), contexts=(first.context,)
        ) as step:
            try:
                spec = await resolved(parts, first.spec, [one.instance.uuid for one in members])
                notifications.select(parts.notifier, "start", spec, members)
                reply = await parts.transport.call(
                    SCHEDULER,
                    SelectDestinations(
                        spec=spec,
                        members=tuple(Member(one.instance.uuid, one.attempt) for one in members),
                        min_count=1 if first.met else first.min_count,
                        exclude_cells=avoided,
                        alternates=parts.max_attempts - 1,
                        supersedes_above=0,
                    ),
                    context=first.context,
                )
            except SkepError as error:
                step.outcome = "unavailable"
                log.warning("no decision", request=first.context.request_id, members=len(members), error=str(error))
                return [(one, NotReady(reason=_no_answer(error))) for one in members]
            except Exception:
                # A request that nobody can decide must not keep the others from being placed.
                step.outcome = "failed"
                log.exception("no decision", request=first.context.request_id, members=len(members))
                return [(one, NotReady(reason="the request cannot be decided")) for one in members]
            if any(isinstance(decision, Placed) for decision in reply.decisions):
                notifications.select(parts.notifier, "end", spec, members)
            return [
                (one, not_final(decision) if avoided else decision)
                for one, decision in zip(members, reply.decisions, strict=True)
            ]

    async def _with_ports(self, fated: list[Fated]) -> list[Fated]:
        """Give the members that have a host their ports, and take back those of members that have none.

        What networks do not give is refused for good: another host would not change it. Members for which the network
        service does not answer are asked for again, their claims freed; the others go on.
        """
        parts = self._parts
        placed = [(one, fate) for one, fate in fated if isinstance(fate, Placed) and one.instance.networks != "none"]
        others = [pair for pair in fated if not isinstance(pair[1], Placed) or pair[0].instance.networks == "none"]
        without = [pair for pair in others if not isinstance(pair[1], Placed)]
        if not placed and not without:
            return fated
        async with parts.steps.step("ports", **_named_once(placed or others)) as step:
            if without and not await self._ports_released([one for one, _ in without]):
                others = [pair for pair in others if pair not in without]
            try:
                given = await parts.networks.allocate([_wanted_ports(one, fate) for one, fate in placed])
            except SkepError as error:
                step.outcome = "unavailable"
                log.warning("no ports", members=len(placed), error=str(error))
                await self._release(_claims_of(placed))
                await self._ask_again([one for one, _ in placed])
                return others
            awaited = [pair for pair, ports in zip(placed, given, strict=True) if isinstance(ports, PortsAwaited)]
            refused = [pair for pair, ports in zip(placed, given, strict=True) if isinstance(ports, PortsRefused)]
            step.note(refused=len(refused), awaited=len(awaited))
            await self._release(_claims_of([*refused, *awaited]))
            if awaited:
                errors = {ports.message for ports in given if isinstance(ports, PortsAwaited)}
                log.warning("no ports", members=len(awaited), error="; ".join(sorted(errors)))
                await self._ask_again([one for one, _ in awaited])
        return others + [
            _with_vifs(one, fate, ports)
            for (one, fate), ports in zip(placed, given, strict=True)
            if not isinstance(ports, PortsAwaited)
        ]

    async def _with_volumes(self, taken: list[Taken]) -> tuple[list[Taken], list[Fated]]:
        """Make and keep the volumes of members; return those that may get a host, and those whose volumes are refused.

        Members whose volumes are not there yet are asked for again; the others go on.
        """
        asked = [one for one in taken if has_volumes(one)]
        if not asked:
            return taken, []
        async with self._parts.steps.step("volumes", **_members_named(asked)) as step:
            outcomes = await self._volumes.prepare(asked)
            awaited = [
                (one, outcome) for one, outcome in zip(asked, outcomes, strict=True) if isinstance(outcome, Awaited)
            ]
            refused: list[Fated] = [
                (one, outcome)
                for one, outcome in zip(asked, outcomes, strict=True)
                if isinstance(outcome, VolumesRefused)
            ]
            step.note(refused=len(refused), awaited=len(awaited))
            await self._give_back_awaited(awaited)
        ready = {one.instance.uuid: one for one in outcomes if isinstance(one, Taken)}
        without = {one.instance.uuid for one in asked} - ready.keys()
        return [ready.get(one.instance.uuid, one) for one in taken if one.instance.uuid not in without], refused

    async def _connected(self, fated: list[Fated]) -> list[Fated]:
        """Connect the volumes of members that have a host, and release those of members that get none."""
        placed = [(one, fate) for one, fate in fated if isinstance(fate, Placed) and one.instance.volumes]
        without = [(one, fate) for one, fate in fated if not isinstance(fate, Placed) and has_volumes(one)]
        if not placed and not without:
            return fated
        async with self._parts.steps.step("connect", **_named_once(placed or without)) as step:
            outcomes = await self._volumes.connect([(one, fate.host) for one, fate in placed])
            ready: list[Fated] = []
            refused: list[Fated] = []
            awaited: list[tuple[Taken, Awaited]] = []
            for (one, fate), outcome in zip(placed, outcomes, strict=True):
                if isinstance(outcome, Awaited):
                    awaited.append((one, outcome))
                elif isinstance(outcome, VolumesRefused):
                    refused.append((one, outcome))
                else:
                    ready.append((outcome, fate))
            step.note(refused=len(refused), awaited=len(awaited))
            held = {one.instance.uuid for one, _ in (*refused, *awaited)}
            await self._release(_claims_of([pair for pair in placed if pair[0].instance.uuid in held]))
            await self._give_back_awaited(awaited)
            gone = await self._volumes_released([one for one, _ in (*without, *refused)])
        apart = {one.instance.uuid for one, _ in (*placed, *without)}
        others = [pair for pair in fated if pair[0].instance.uuid not in apart]
        return [*others, *ready, *(pair for pair in (*without, *refused) if pair[0].instance.uuid in gone)]

    async def _volumes_released(self, members: Sequence[Taken]) -> set[InstanceUuid]:
        """Release the volumes of members that no host takes; return those whose are. The others are asked again."""
        outcomes = list(zip(members, await self._volumes.release(members), strict=True))
        await self._give_back_awaited([(one, outcome) for one, outcome in outcomes if outcome is not None])
        return {one.instance.uuid for one, outcome in outcomes if outcome is None}

    async def _ask_again(self, members: Sequence[Taken]) -> None:
        """Give members back for which the network service did not answer, with pauses that grow."""
        now = self._parts.clock.now()
        await self._give_back_awaited([(one, unanswered(one, now)) for one in members])

    async def _give_back_awaited(self, awaited: Sequence[tuple[Taken, Awaited]]) -> None:
        for seconds, members in together(awaited).items():
            await self._give_back(members, seconds=seconds)

    async def _ports_released(self, members: Sequence[Taken]) -> bool:
        """Take the ports back of members that no host takes; where that cannot be done they are asked for again."""
        try:
            await self._parts.networks.release([(one.instance.uuid, one.attempt) for one in members])
        except SkepError as error:
            log.warning("ports not released", members=len(members), error=str(error))
            await self._ask_again(members)
            return False
        return True

    async def _into_cell(self, cell: CellUuid, members: list[Fated]) -> None:
        """Stage, map and settle the members that one cell gets. What it cannot store now is tried again elsewhere."""
        parts, name = self._parts, str(cell)
        staged = [self._staged(one, fate) for one, fate in members]
        try:
            access = parts.cell(cell)
            name = access.cell.name
            async with parts.steps.step("stage", cell=name, **_named_once(members)):
                now = parts.clock.now()
                written = await access.write(partial(cell_builds.stage, staged=staged, now=now))
        except Exception as error:
            log.warning("cell did not store", cell=name, error=str(error), exc_info=not isinstance(error, SkepError))
            self._avoid[cell] = parts.after(AVOID_SECONDS)
            await self._release(_claims_of(members))
            await self._give_back([one for one, _ in members], seconds=0.5)
            return
        async with parts.steps.step("map", cell=name, **_named_once(members)) as step:
            there = [(one, fate) for one, fate in members if one.instance.uuid in written]
            mapped, moment = await parts.api.write(partial(self._map, cell=cell, members=there))
            parts.advanced(moment)
            step.note(mapped=len(mapped))
        mine = [one for one in staged if one.instance.uuid in mapped]
        if mine:
            async with parts.steps.step("settle", cell=name, **_named_once(members)):
                keys = [(one.instance.uuid, one.instance.attempt) for one in mine]
                await settle(parts, access, keys, moment)
            await parts.nudge(cell, "builds")
            for one in mine:
                notifications.staged(parts.notifier, one)
        lost = [(one, fate) for one, fate in members if one.instance.uuid not in mapped]
        if lost:
            await self._unmapped(cell, lost)

    async def _unmapped(self, cell: CellUuid, lost: list[Fated]) -> None:
        """A mapping did not take: the user deleted or changed the server, somebody replaced me, or the operator deletes
        or disables the host or the cell.
        """
        parts = self._parts
        found = await parts.api.read(partial(mappings.get_many, instances=[one.instance.uuid for one, _ in lost]))
        lost = [(one, fate) for one, fate in lost if not _is_mapped(found.get(one.instance.uuid), cell, one)]
        again: list[Taken] = []
        await self._volumes.give_up([one for one, _ in lost if one.instance.volumes], found)
        for one, _ in lost:
            mapping = found.get(one.instance.uuid)
            still_mine = mapping is not None and mapping.attempt == one.attempt and mapping.cell is None
            if still_mine and mapping is not None and mapping.delete_intent_at is None:
                again.append(one)

        def unit(connection: Connection) -> list[ClaimKey]:
            return [key for one, _ in lost for key in cell_builds.unstage(connection, one.instance.uuid, one.attempt)]

        overwritten: list[ClaimKey] = []
        try:
            overwritten = await parts.cell(cell).write(unit)
        except SkepError as error:
            # The cell may be gone. What is staged in one that is not is removed by another pass: its attempt is old.
            log.warning("staged rows not removed yet", cell=str(cell), members=len(lost), error=str(error))
        await self._release({*_claims_of(lost), *overwritten})
        # Not at once: schedulers may not know yet that the host or the cell takes no more.
        await self._give_back(again, seconds=RETRY_SECONDS)

    def _take(self, connection: Connection, limit: int) -> tuple[list[Taken], Moment | None]:
        parts = self._parts
        moment = parts.advance(connection)
        return mappings.take(connection, owner=parts.owner, now=parts.clock.now(), limit=limit), moment

    def _map(
        self, connection: Connection, cell: CellUuid, members: Sequence[Fated]
    ) -> tuple[set[InstanceUuid], Moment | None]:
        """Point mappings at a cell, and note which requests have their minimum now, in one transaction."""
        mapped = mappings.map_to_cell(connection, cell, [self._placement(one, fate) for one, fate in members])
        met = {
            one.context.request_id
            for one, fate in members
            if not one.met and isinstance(fate, Placed) and one.instance.uuid in mapped
        }
        if met:
            mappings.mark_met(connection, list(met))
        return mapped, self._parts.advance(connection) if mapped else None

    def _placement(self, one: Taken, fate: Fate) -> StagedMember:
        return StagedMember(
            instance=one.instance.uuid,
            attempt=one.attempt,
            revision=one.revision,
            node=fate.node if isinstance(fate, Placed) else None,
            although_disabled=self._parts.takes_disabled(one.spec),
        )

    def _staged(self, one: Taken, fate: Fate) -> Staged:
        if isinstance(fate, Placed):
            instance = msgspec.structs.replace(
                one.instance,
                attempt=one.attempt,
                availability_zone=fate.zone,
                state=State.SCHEDULED,
            )
            return Staged(
                instance=instance,
                assignment=fate.assignment(one.spec),
                spec=one.spec,
                context=one.context,
                epoch=fate.epoch,
                alternates=fate.alternates,
                explanation=fate.explanation,
                secrets=one.secrets,
            )
        now = self._parts.clock.now()
        explanation = fate.explanation if isinstance(fate, NoValidHost) else None
        rejected = {} if explanation is None else explanation.rejected
        details = "; ".join(f"{host}: {stage}" for host, stage in sorted(rejected.items()))
        fault = Fault(code=500, message=_message(one, fate), created_at=now, details=details or None)
        # What it has is released, unless it is ports: they stay with it.
        plain = msgspec.structs.replace(one.instance, volumes=())
        instance = msgspec.structs.replace(plain, attempt=one.attempt, fault=fault, state=State.ERROR)
        return Staged(
            instance=instance,
            assignment=None,
            spec=one.spec,
            context=one.context,
            epoch="",
            explanation=explanation,
            refusal=None if isinstance(fate, NoValidHost) else fate.message,
        )

    async def _release(self, keys: Collection[ClaimKey]) -> None:
        """Free the claims of attempts that came to nothing; what stays is found by comparing claims with rows."""
        if not keys:
            return
        try:
            await self._parts.transport.call(SCHEDULER, ReleaseClaims(claims=tuple(keys)))
        except SkepError as error:
            log.warning("claims not released yet", claims=len(keys), error=str(error))

    async def _give_back(self, members: Sequence[Taken], *, seconds: float) -> None:
        if not members:
            return
        held = [(one.instance.uuid, one.attempt) for one in members]
        not_before = self._parts.after(seconds) if seconds else 0
        await self._parts.api.write(
            partial(mappings.give_back, owner=self._parts.owner, held=held, not_before=not_before)
        )

    async def _wait_on(self, members: Sequence[Taken], *, seconds: float) -> None:
        """Ask again for members on which no scheduler can decide, and count how long that has been so."""
        if not members:
            return
        held = [(one.instance.uuid, one.attempt) for one in members]
        now = self._parts.clock.now()
        not_before = now + round(seconds * SECOND)
        await self._parts.api.write(
            partial(mappings.give_back, owner=self._parts.owner, held=held, not_before=not_before, undecided_at=now)
        )

    def _avoided(self) -> tuple[CellUuid, ...]:
        now = self._parts.clock.now()
        self._avoid = {cell: until for cell, until in self._avoid.items() if until > now}
        return tuple(cell for cell in {*self._avoid, *self._parts.silent} if cell != CELL0)

    def _too_late(self, one: Taken) -> bool:
        """Tell whether a server has waited too long; while nobody ran who could place it, it did not wait for us."""
        return one.waited > self._parts.settings.not_ready_deadline * SECOND


def _is_mapped(mapping: Mapping | None, cell: CellUuid, one: Taken) -> bool:
    """Tell whether a mapping names this cell for this very attempt: it was done before, and is left to be settled."""
    return mapping is not None and mapping.cell == cell and mapping.attempt == one.attempt


def _claims_of(members: Iterable[Fated]) -> list[ClaimKey]:
    return [
        ClaimKey(one.instance.uuid, one.attempt, fate.node, one.spec.group.uuid if one.spec.group else None)
        for one, fate in members
        if isinstance(fate, Placed)
    ]


def _wanted_ports(one: Taken, placed: Placed) -> WantedPorts:
    asked = one.instance
    return WantedPorts(
        instance=asked.uuid,
        attempt=one.attempt,
        project_id=asked.project_id,
        is_admin=one.context.is_admin,
        host=placed.host,
        zone=placed.zone,
        networks=asked.networks,
        named=asked.requested_networks,
        security_groups=asked.security_groups,
        providers=placed.allocation.ports if placed.allocation is not None else {},
    )


def _with_vifs(one: Taken, placed: Placed, ports: tuple[Vif, ...] | PortsRefused) -> Fated:
    if isinstance(ports, PortsRefused):
        return one, ports
    return msgspec.structs.replace(one, instance=msgspec.structs.replace(one.instance, vifs=ports)), placed


def _message(one: Taken, fate: Fate) -> str:
    """Return what a user is told of a server that no host takes."""
    if isinstance(fate, NoValidHost):
        return fate.message()
    assert not isinstance(fate, Placed)
    words = NO_PORTS if isinstance(fate, PortsRefused) else NO_VOLUMES.format(one.instance.uuid)
    return f"{words} {fate.message}"


def _no_answer(error: SkepError) -> str:
    """Say why there is no decision: the text of an error that is no "try again" is for the log."""
    return f"no scheduler answered: {error}" if isinstance(error, Unavailable) else "the scheduler failed"


class _Named(TypedDict, total=False):
    request: str
    instance: str
    attempt: int
    host: str
    members: int
    contexts: Iterable[RequestContext]


def _named_once(members: Sequence[Fated]) -> _Named:
    """Return what a line about these members can say: who it is when there is one, else how many."""
    fate = members[0][1]
    return _members_named([one for one, _ in members], fate.host if isinstance(fate, Placed) else "")


def _members_named(members: Sequence[Taken], host: str = "") -> _Named:
    contexts = (one.context for one in members)
    if len(members) > 1:
        return {"members": len(members), "contexts": contexts}
    [one] = members
    return {
        "request": one.context.request_id,
        "instance": one.instance.uuid,
        "attempt": one.attempt,
        "host": host,
        "contexts": contexts,
    }


def _never_ready(decision: NotReady) -> NoValidHost:
    return NoValidHost(explanation=Explanation(considered=0), reason=decision.reason)
