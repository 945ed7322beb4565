"""Choosing hosts for all members of a request, and claiming them before the answer leaves."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, replace

from skep.domain.builds import Decision, NotReady, NoValidHost, Placed
from skep.domain.claims import Claim, ClaimKey
from skep.messages.to_scheduler import Member, SelectDestinations
from skep.scheduler import changes
from skep.scheduler.commits import Commits
from skep.scheduler.groups import GroupSlot
from skep.scheduler.placement import Choice, NoHost
from skep.scheduler.records import COMPUTE, GROUPS
from skep.scheduler.request import PlacementRequest, placement_request
from skep.scheduler.settings import SchedulerSettings
from skep.scheduler.states import HostStates
from skep.synchronizer.base import Key

MOST_ROUNDS = 20
"""So many times a member is decided again when others were quicker; then the caller asks again later."""


@dataclass(slots=True)
class _Seat:
    """One member and how far it is."""

    member: Member
    request: PlacementRequest
    claim: Claim | None = None
    slot: GroupSlot | None = None
    choice: Choice | None = None
    epoch: str = ""
    claimed: bool = False
    no: NoValidHost | NotReady | None = None

    @property
    def key(self) -> ClaimKey | None:
        """The name of the claim."""
        claim = self.claim
        return None if claim is None else ClaimKey(claim.instance, claim.attempt, claim.node, claim.group)


class Selecting:
    """The story of `select_destinations`."""

    def __init__(self, states: HostStates, commits: Commits, settings: SchedulerSettings) -> None:
        self._states = states
        self._commits = commits
        self._settings = settings

    async def select(self, message: SelectDestinations) -> tuple[Decision, ...]:
        """Decide for each member.

        Raises Unavailable when claims cannot be stored; what was stored is found again when the call is repeated.
        """
        request = placement_request(
            message.spec,
            cell=message.cell,
            exclude_cells=message.exclude_cells,
            prefer=message.prefer,
            ignore=message.ignore,
            alternates=message.alternates,
        )
        seed = secrets.randbits(64) if self._settings.shuffle else self._settings.seed
        seats = [_Seat(member, request) for member in message.members]
        try:
            for seat in seats:
                if message.dry_run or not self._find(seat, seed):
                    self._decide(seat, seed)
            if message.dry_run:
                return self._answers(seats, message.min_count)
            rounds = 0
            while not self._too_few(seats, message.min_count) and await self._claim_all(seats, seed):
                rounds += 1
                if rounds == MOST_ROUNDS:
                    self._give_up(seats)
            if self._too_few(seats, message.min_count):
                await self._give_back(seats)
            return self._answers(seats, message.min_count)
        finally:
            for seat in seats:
                self._drop(seat)

    def _find(self, seat: _Seat, seed: int) -> bool:
        """Find the claim that an earlier call of the same attempt made."""
        claim = self._states.claims.stored((seat.member.instance, seat.member.attempt))
        row = self._states.table.row_of.get(claim.node) if claim is not None else None
        if claim is None or row is None or not self._states.table.mapped[row]:
            return False
        seat.claim, seat.claimed, seat.epoch = claim, True, self._states.epoch
        seat.choice = self._states.placement.describe(row, seat.request, seat.member.instance, seed=seed)
        return True

    def _decide(self, seat: _Seat, seed: int) -> None:
        """Choose a host and count the choice, so that the next member sees it; or say why there is none."""
        group = seat.request.spec.group
        instance = seat.member.instance
        unknown = self._states.group_unknown(group)
        if unknown is not None:
            seat.no = NotReady(reason=unknown)
            return
        choice = self._states.placement.choose(seat.request, instance, seed=seed)
        if isinstance(choice, NoHost):
            reason = self._states.not_ready(seat.request, instance)
            seat.no = NotReady(reason=reason) if reason else NoValidHost(explanation=choice.explanation)
            return
        seat.choice = choice
        seat.claim = Claim(
            instance=instance,
            attempt=seat.member.attempt,
            node=choice.node,
            resources=seat.request.resources,
            group=group.uuid if group is not None and group.is_hard else None,
        )
        self._states.claims.assume(seat.claim)
        if group is not None:
            seat.slot = GroupSlot(instance, seat.member.attempt, choice.node)
            self._states.groups.assume(group.uuid, seat.slot)

    async def _claim_all(self, seats: list[_Seat], seed: int) -> bool:
        """Store what is decided, all at once; decide again for those refused. Tell whether some were."""
        waiting = [seat for seat in seats if seat.choice is not None and not seat.claimed]
        outcomes = await asyncio.gather(*(self._claim(seat) for seat in waiting), return_exceptions=True)
        failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        if failures:
            raise failures[0]
        refused = [seat for seat in waiting if not seat.claimed]
        for seat in refused:
            self._drop(seat)
        for seat in refused:
            seat.choice = None
            self._decide(seat, seed)
        return bool(refused)

    async def _claim(self, seat: _Seat) -> None:
        """Store one claim; with a group its slot first, which is freed again if the claim is refused."""
        claim, rule = seat.claim, seat.request.spec.group
        assert claim is not None
        if rule is not None and seat.slot is not None:
            group = Key(GROUPS, rule.uuid)
            taken = await self._commits.change(group, changes.take_slot(rule, seat.slot))
            if not taken.answer:
                seat.request = replace(seat.request, ignore=(*seat.request.ignore, claim.node))
                return
        stored = await self._commits.change(Key(COMPUTE, claim.node), changes.add_claim(claim))
        seat.claimed, seat.epoch = stored.answer, stored.epoch
        if not seat.claimed and rule is not None and seat.key is not None:
            await self._commits.change(Key(GROUPS, rule.uuid), changes.free_slots(seat.key))

    def _give_up(self, seats: list[_Seat]) -> None:
        """Let the members wait whose choices others took, time and again."""
        for seat in seats:
            if seat.choice is not None and not seat.claimed:
                self._drop(seat)
                seat.choice, seat.no = None, NotReady(reason="other requests took each host that fitted")

    async def _give_back(self, seats: list[_Seat]) -> None:
        """Free what was claimed: fewer than the minimum fit."""
        freeing = []
        for seat in seats:
            if seat.claimed and seat.key is not None:
                freeing.append(self._commits.change(Key(COMPUTE, seat.key.node), changes.remove_claim(seat.key)))
                if seat.request.spec.group is not None:
                    group = Key(GROUPS, seat.request.spec.group.uuid)
                    freeing.append(self._commits.change(group, changes.free_slots(seat.key)))
                seat.claimed = False
        await asyncio.gather(*freeing)

    def _drop(self, seat: _Seat) -> None:
        """Count a decision no longer that is not stored; one that is stored does not need it."""
        if seat.claim is not None:
            self._states.claims.drop(seat.claim)
        if seat.slot is not None and seat.request.spec.group is not None:
            self._states.groups.drop(seat.request.spec.group.uuid, seat.slot)

    def _too_few(self, seats: list[_Seat], min_count: int) -> bool:
        return sum(seat.choice is not None for seat in seats) < min(min_count, len(seats))

    def _answers(self, seats: list[_Seat], min_count: int) -> tuple[Decision, ...]:
        if not self._too_few(seats, min_count):
            return tuple(self._answer(seat) for seat in seats)
        refusals = [seat.no for seat in seats if seat.no is not None]
        for no in refusals:
            if isinstance(no, NotReady):
                return tuple(no for _ in seats)
        fit = len(seats) - len(refusals)
        explanation = next(no.explanation for no in refusals if isinstance(no, NoValidHost))
        reason = explanation.summary()
        if fit:
            reason = f"{fit} of at least {min_count} servers fit, so none was placed; for the next one: {reason}"
        return tuple(NoValidHost(explanation=explanation, reason=reason if fit else "") for _ in seats)

    def _answer(self, seat: _Seat) -> Decision:
        choice = seat.choice
        if choice is None:
            assert seat.no is not None
            return seat.no
        return Placed(
            node=choice.node,
            host=choice.host,
            cell=choice.cell,
            zone=choice.zone,
            epoch=seat.epoch or self._states.epoch,
            alternates=choice.alternates,
            explanation=choice.explanation,
        )
