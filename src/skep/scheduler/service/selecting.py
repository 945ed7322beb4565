"""The story of `select_destinations`: decide, store every claim before the answer leaves, decide again the refused."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

from skep.domain.builds import Decision
from skep.messages.to_scheduler import SelectDestinations
from skep.scheduler.deciding import Deciding, Seat
from skep.scheduler.request import placement_request
from skep.scheduler.service import changes
from skep.scheduler.service.commits import Commits, Stored
from skep.scheduler.service.records import COMPUTE, GROUPS
from skep.scheduler.service.releasing import supersede
from skep.scheduler.service.states import HostStates
from skep.scheduler.settings import SchedulerSettings
from skep.synchronizer.base import Key

MOST_ROUNDS = 20
"""So many times a member is decided again when others were quicker; then its caller has to ask again."""


class Selecting:
    """Selects for one request at a time of each attempt; any number of requests side by side."""

    def __init__(self, states: HostStates, commits: Commits, settings: SchedulerSettings) -> None:
        self._states = states
        self._commits = commits
        self._settings = settings

    async def select(self, message: SelectDestinations) -> tuple[Decision, ...]:
        """Decide for each member.

        Raises Unavailable when claims cannot be stored; what was stored is found again when the call is repeated.
        """
        await supersede(self._states, self._commits, message)
        request = placement_request(
            message.spec,
            cell=message.cell,
            exclude_cells=message.exclude_cells,
            prefer=message.prefer,
            ignore=message.ignore,
            alternates=message.alternates,
        )
        deciding = Deciding(
            self._states,
            [Seat(member.instance, member.attempt, request) for member in message.members],
            min_count=message.min_count,
            seed=secrets.randbits(64) if self._settings.shuffle else self._settings.seed,
        )
        try:
            deciding.decide_all(anew=message.dry_run)
            if not message.dry_run:
                await self._store(deciding)
            return deciding.answers()
        finally:
            for seat in deciding.seats:
                deciding.drop(seat)

    async def _store(self, deciding: Deciding) -> None:
        """Store what is decided until nothing is refused; give all back if too few fit."""
        rounds = 0
        while deciding.unstored and not deciding.too_few:
            await self._claim_all(deciding)
            rounds += 1
            if rounds == MOST_ROUNDS:
                deciding.give_up()
        if deciding.too_few:
            await self._give_back(deciding)

    async def _claim_all(self, deciding: Deciding) -> None:
        """Store all decided claims at once; decide again for those refused."""
        waiting = deciding.unstored
        outcomes = await asyncio.gather(*(self._claim(deciding, seat) for seat in waiting), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        refused = [seat for seat in waiting if not seat.stored]
        for seat in refused:
            deciding.drop(seat)
        for seat in refused:
            deciding.decide(seat)

    async def _claim(self, deciding: Deciding, seat: Seat) -> None:
        """Store one claim; with a group its slot first, which is freed again if the claim is refused."""
        claim, rule = seat.claim, seat.request.spec.group
        assert claim is not None
        if rule is not None and seat.slot is not None:
            taken = await self._commits.change(Key(GROUPS, rule.uuid), changes.take_slot(rule, seat.slot))
            if not taken.answer:
                deciding.refuse_slot(seat)
                return
        stored = await self._commits.change(Key(COMPUTE, claim.node), changes.add_claim(claim))
        seat.stored, seat.epoch = stored.answer, stored.epoch
        if not seat.stored and rule is not None:
            await self._commits.change(Key(GROUPS, rule.uuid), changes.free_slot(seat.key))

    async def _give_back(self, deciding: Deciding) -> None:
        """Free what was claimed: fewer than the minimum fit."""
        freeing: list[asyncio.Future[Stored[Any]]] = []
        for seat in deciding.seats:
            if seat.stored:
                freeing.append(self._commits.change(Key(COMPUTE, seat.key.node), changes.remove_claim(seat.key)))
                if seat.request.spec.group is not None:
                    group = Key(GROUPS, seat.request.spec.group.uuid)
                    freeing.append(self._commits.change(group, changes.free_slot(seat.key)))
                seat.stored = False
        await asyncio.gather(*freeing)
