"""The story of `select_destinations`: decide, store every claim before the answer leaves, decide again the refused.

"No valid host" is not said before what others wrote was read, nor because of room that another request has only asked
for: what it decided may be refused yet.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import replace

from skep.domain.builds import Decision
from skep.domain.claims import Claim
from skep.messages.to_scheduler import SelectDestinations
from skep.placement.deciding import Deciding, Seat
from skep.placement.groups import GroupSlot
from skep.placement.request import PlacementRequest
from skep.placement.settings import SchedulerSettings
from skep.scheduler import changes
from skep.scheduler.changes import Change, Changing
from skep.scheduler.commits import Commits, Stored
from skep.scheduler.records import COMPUTE, GROUPS, GroupValue
from skep.scheduler.releasing import supersede
from skep.scheduler.seating import deciding_of
from skep.scheduler.states import HostStates
from skep.synchronizer.base import Key

AnswerT = TypeVar("AnswerT")

Begin = Callable[[SelectDestinations, int], Deciding]

MOST_ROUNDS = 20
"""So many times a member is decided again when others were quicker; then its caller has to ask again."""
MOST_LOOKS = 5
"""So many times a member without a host waits for what others have only asked for; then its caller has to ask again."""


class Selecting:
    """Selects for one request at a time of each attempt; any number of requests side by side."""

    def __init__(
        self,
        states: HostStates,
        commits: Commits,
        settings: SchedulerSettings,
        on_conflict: Callable[[], None] | None = None,
        begin: Begin | None = None,
    ) -> None:
        """`on_conflict` is told of each request of which a write was refused because somebody else was quicker.

        `begin` makes the decisions of a message, by a seed; None: those that nobody writes down.
        """
        self._states = states
        self._commits = commits
        self._settings = settings
        self._on_conflict = on_conflict
        self._begin = begin if begin is not None else partial(deciding_of, states, settings)
        self._storing: set[asyncio.Future[None]] = set()
        """Requests whose decisions are on their way into records: each ends without waiting for another."""

    async def select(self, message: SelectDestinations) -> tuple[Decision, ...]:
        """Decide for each member.

        Raises Unavailable when claims cannot be stored, or when the changes cannot be read that "no valid host" would
        need; what was stored is found again when the call is repeated.
        """
        if not message.dry_run:
            await self._commits.be_certain()
            if self._is_repeated(message):
                await self._commits.look()
        await supersede(self._states, self._commits, message)
        seed = secrets.randbits(64) if self._settings.shuffle else self._settings.seed
        deciding = self._begin(message, seed)
        try:
            deciding.decide_all(anew=message.dry_run)
            if not message.dry_run:
                await self._store(deciding)
            return deciding.answers()
        finally:
            deciding.drop_all()

    def _is_repeated(self, message: SelectDestinations) -> bool:
        """Tell whether an earlier call left something of these attempts, which may be gone without being heard of."""
        keys = {(member.instance, member.attempt) for member in message.members}
        return self._states.claims.has_any(keys) or any(self._states.groups.groups_of(*key) for key in keys)

    async def _store(self, deciding: Deciding) -> None:
        """Store what is decided until nothing is refused; give all back if too few fit."""
        rounds = looks = refused = 0
        while True:
            if deciding.unstored and not deciding.too_few:
                if rounds == MOST_ROUNDS:
                    deciding.give_up()
                    break
                rounds += 1
                refused += await self._claim_all(deciding)
            elif deciding.undecided and await self._may_fit_yet(deciding, looks):
                looks += 1
                deciding.decide_undecided()
            else:
                break
        if refused and self._on_conflict is not None:
            self._on_conflict()
        if deciding.too_few:
            await self._give_back(deciding)

    async def _may_fit_yet(self, deciding: Deciding, looks: int) -> bool:
        """Look for what may have made room for the members without a host; tell whether to decide for them again.

        First what other schedulers wrote is read, then what other requests have only asked for must settle.
        """
        if looks and not self._storing:
            return False
        if looks > MOST_LOOKS:
            deciding.wait_for_others()
            return False
        if deciding.too_few:
            deciding.let_go()
        if looks:
            await asyncio.wait(self._storing)
        else:
            await self._commits.look()
        return True

    async def _claim_all(self, deciding: Deciding) -> int:
        """Store all decided claims at once; decide again for those refused. Return how many writes were refused."""
        waiting = deciding.unstored
        done = asyncio.get_running_loop().create_future()
        self._storing.add(done)
        try:
            if len(waiting) == 1:
                refused = await self._claim(deciding, waiting[0])
            else:
                refused = sum(await _all(self._claim(deciding, seat) for seat in waiting))
            missed = [seat for seat in waiting if not seat.stored]
            for seat in missed:
                deciding.drop(seat)
            for seat in missed:
                deciding.decide_again(seat)
        finally:
            self._storing.discard(done)
            done.set_result(None)
        return refused

    async def _claim(self, deciding: Deciding, seat: Seat) -> int:
        """Store one claim; with a group its slot first, which is freed again if the claim is refused.

        A slot that an earlier call of the attempt took stays: that call may be storing its claim right now. Return how
        many writes were refused because somebody else was quicker.
        """
        claim, rule = seat.claim, seat.request.spec.group
        assert claim is not None
        refused = 0
        if rule is not None and seat.slot is not None:
            group = Key(GROUPS, rule.uuid)
            taking = self._as_decided(seat, self._take_slot(seat), no=False)
            taken = await self._commits.change(group, taking, urgent=True)
            refused = taken.refused
            if not taken.answer:
                await self._give_up_place(seat)
                deciding.shun(seat)
                return refused
        still_fits = partial(self._states.placement.still_fits, seat.request, claim.node)
        claiming = changes.add_claim(claim, seat.request.nested, still_fits)
        adding: Changing[Claim | None] = self._as_decided(seat, claiming, None)
        stored = await self._commits.change(Key(COMPUTE, claim.node), adding, urgent=True)
        refused += stored.refused
        seat.stored = stored.answer is not None
        if stored.answer is not None:
            # It may have got other CPUs and devices than was decided, where others were quicker.
            seat.claim = stored.answer
        if rule is not None and not seat.stored and seat.older != seat.slot:
            await self._commits.change(Key(GROUPS, rule.uuid), changes.free_slot(seat.key), urgent=True)
        return refused

    async def _give_up_place(self, seat: Seat) -> None:
        """Free the claim of an earlier call that was never answered, if there is one where the group has no place."""
        if self._has_claim(seat):
            removing = self._as_decided(seat, changes.remove_claim(seat.key), no=False)
            await self._commits.change(Key(COMPUTE, seat.key.node), removing, urgent=True)

    def _has_claim(self, seat: Seat) -> bool:
        """Tell whether the record of the host that was chosen has a claim of the attempt."""
        held = self._states.claims.all_of((seat.instance, seat.attempt))
        return seat.claim is not None and any(claim.node == seat.claim.node for claim in held)

    def _as_decided(self, seat: Seat, changing: Changing[AnswerT], no: AnswerT) -> Changing[AnswerT]:
        """Change a record only while what the decision stood on is so.

        In another epoch nobody knows yet what else is claimed. And where another scheduler was asked for the same
        attempt at the same time, its claim is taken instead of making another one.

        What is there already is written once more: where it has gone since we heard of it, that is refused.
        """
        attempt, node, rule = (seat.instance, seat.attempt), seat.key.node, seat.request.spec.group
        group = rule.uuid if rule is not None else None

        def change(value: Any) -> Change[AnswerT]:
            found = self._states.claim_of(attempt, group)
            if self._states.epoch != seat.epoch or (found is not None and found.node != node):
                return Change(value, no)
            made = changing(value)
            return made if made.value is not value or not made.answer else Change(replace(value), made.answer)

        return change

    def _take_slot(self, seat: Seat) -> Changing[bool]:
        """Take the member's place, unless its attempt has one by now that was not known when the host was chosen.

        Then another scheduler decides the same attempt, and its choice is better followed than replaced.
        """
        rule, slot, older = seat.request.spec.group, seat.slot, seat.older
        assert rule is not None
        assert slot is not None
        spreads = partial(self._spreads, seat.request, slot) if rule.spread else None
        taking, known = changes.take_slot(rule, slot, spreads=spreads), (slot, older)

        def change(value: GroupValue | None) -> Change[bool]:
            held: tuple[GroupSlot, ...] = value.slots if value is not None else ()
            mine = (one for one in held if (one.instance, one.attempt) == (slot.instance, slot.attempt))
            if any(one not in known for one in mine):
                return Change(value, answer=False)
            seat.older = slot if slot in held else older
            return taking(value)

        return change

    def _spreads(self, request: PlacementRequest, slot: GroupSlot, held: Iterable[GroupSlot]) -> bool:
        return self._states.placement.spreads(request, held, slot)

    async def _give_back(self, deciding: Deciding) -> None:
        """Free what was claimed: fewer than the minimum fit."""
        freeing: list[asyncio.Future[Stored[Any]]] = []
        for seat in deciding.seats:
            if seat.stored or self._has_claim(seat):
                removing = changes.remove_claim(seat.key)
                freeing.append(self._commits.change(Key(COMPUTE, seat.key.node), removing, urgent=True))
                if seat.request.spec.group is not None:
                    group = Key(GROUPS, seat.request.spec.group.uuid)
                    freeing.append(self._commits.change(group, changes.free_slot(seat.key), urgent=True))
                seat.stored = False
        await asyncio.gather(*freeing)


async def _all(claiming: Iterable[Coroutine[Any, Any, int]]) -> list[int]:
    """Wait until each has ended, then raise the first error if there is one."""
    counts: list[int] = []
    for outcome in await asyncio.gather(*claiming, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
        counts.append(outcome)
    return counts
