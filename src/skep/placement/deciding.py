"""One decision for a whole request: a host for each member, each seeing what the ones before it took.

Pure: nothing is stored here. The service stores what was decided and, where another scheduler was quicker, has the
member decided again; the simulator and the benchmarks take the decision as it is.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from skep.domain.builds import Decision, Explanation, NotReady, NoValidHost, Placed
from skep.domain.claims import Claim, ClaimKey
from skep.domain.groups import GroupRule
from skep.domain.ids import InstanceUuid, NodeUuid
from skep.domain.providers import Allocation
from skep.placement.choice import Choice, NoHost, place
from skep.placement.groups import GroupSlot
from skep.placement.knowledge import Knowledge
from skep.placement.request import PlacementRequest


class Seat(msgspec.Struct, eq=False, gc=False):
    """One member and how far it is. Nothing leads back to it: the garbage collector need not look at it."""

    instance: InstanceUuid
    attempt: int
    request: PlacementRequest
    choice: Choice | None = None
    claim: Claim | None = None
    slot: GroupSlot | None = None
    """Of a member of a group."""
    stored: bool = False
    """Whether the claim is in its record."""
    epoch: str = ""
    """Under which it was decided, and stored."""
    no: NoHost | NotReady | None = None
    older: GroupSlot | None = None
    """The slot that the attempt had already: it gives way to `slot`."""
    shunned: tuple[NodeUuid, ...] = ()
    """Where the group's record had no place."""
    decided_at: int = -1
    """Where the table's log of changes ended when no host was found."""

    @property
    def key(self) -> ClaimKey:
        """The name of the claim. Only for seats that have one."""
        assert self.claim is not None
        return ClaimKey(self.instance, self.attempt, self.claim.node, self.claim.group)


class Deciding:
    """Decides the members of one request in their order. What is decided counts for others until it is dropped."""

    fewest_together = 16
    """Fewer members are decided by themselves: that costs less."""

    def __init__(
        self, known: Knowledge, seats: list[Seat], *, min_count: int, seed: int, dry_run: bool = False
    ) -> None:
        """`dry_run`: nobody asks for servers, so nothing is learned of what is asked for."""
        self.seats = seats
        self.dry_run = dry_run
        self._known = known
        self._min_count = min(min_count, len(seats))
        self._seed = seed
        self._salt = place(seats[0].instance, seed) if seats else 0
        """Where among equally good hosts the members begin."""
        self._explains = False

    def decide_all(self, *, anew: bool = False) -> None:
        """Decide each member; one whose attempt has a claim keeps it, unless all shall be decided `anew`.

        Who asks for that wants to know why, so that then choices are explained like refusals.
        """
        self._explains = anew
        waiting = [seat for seat in self.seats if anew or not self._find(seat)]
        for seat in waiting[self._decide_together(waiting) :]:
            self.decide(seat)

    def _decide_together(self, seats: list[Seat]) -> int:
        """Decide for the first of these as far as that can be done for many at once; return for how many it was."""
        table, claims = self._known.table, self._known.claims
        request = seats[0].request if seats else None
        if len(seats) < self.fewest_together or request is None or request.spec.group is not None or table.mix.learns:
            return 0
        keys = {(seat.instance, seat.attempt) for seat in seats if seat.request is request}
        if len(keys) < len(seats) or claims.has_any(keys):
            return 0
        choices = self._known.placement.choose_together(request, len(seats), salt=self._salt)
        decided, epoch, resources, expected_end = [], self._known.epoch, request.resources, request.spec.expected_end
        for seat, choice in zip(seats, choices, strict=False):
            claim = Claim(
                instance=seat.instance,
                attempt=seat.attempt,
                node=choice.node,
                resources=resources,
                expected_end=expected_end,
            )
            seat.choice, seat.no, seat.epoch, seat.claim = choice, None, epoch, claim
            decided.append(claim)
        claims.assume_all(decided)
        return len(choices)

    def decide(self, seat: Seat) -> None:
        """Choose a host and count the choice, so that the next member sees it; or say why there is none."""
        group = seat.request.spec.group
        seat.choice = seat.no = None
        seat.epoch = self._known.epoch
        unknown = self._known.group_unknown(group)
        if unknown is not None:
            seat.no = NotReady(reason=unknown)
            return
        request = self._request(seat)
        table = self._known.table
        if table.mix.learns and not self.dry_run:
            table.mix.note(seat.request, request.resources, request.nested, table.resources)
        choice = self._known.placement.choose(request, seat.instance, seed=self._seed, salt=self._salt)
        if isinstance(choice, NoHost):
            reason = None if choice.reason else self._known.not_ready(request, seat.instance)
            seat.no = NotReady(reason=reason) if reason else choice
            seat.decided_at = self._known.table.position
            return
        seat.choice = choice
        seat.claim = self._claim(seat, choice)
        self._known.claims.assume(seat.claim)
        if group is not None:
            seat.slot = GroupSlot(seat.instance, seat.attempt, choice.node)
            self._known.groups.assume(group.uuid, seat.slot)

    def _claim(self, seat: Seat, choice: Choice) -> Claim:
        """Return what a member takes of the host that was chosen for it."""
        group = seat.request.spec.group
        return Claim(
            instance=seat.instance,
            attempt=seat.attempt,
            node=choice.node,
            resources=seat.request.resources,
            allocation=self._allocation(seat.request, choice.node),
            expected_end=seat.request.spec.expected_end,
            group=group.uuid if group is not None and group.is_hard else None,
        )

    def _allocation(self, request: PlacementRequest, node: NodeUuid) -> Allocation | None:
        """Return which CPUs, pages and devices the member gets; None where it asks for none."""
        return self._known.placement.allocation(request, node)

    def decide_again(self, seat: Seat) -> None:
        """Decide for a member whose choice could not be stored; by now its attempt may have a claim of another's."""
        self.drop(seat)
        if not self._find(seat):
            self.decide(seat)

    def decide_undecided(self) -> None:
        """Decide once more for each member without a host, unless nothing has changed that it could depend on."""
        for seat in self.undecided:
            grouped = seat.request.spec.group is not None
            if seat.no is None or grouped or seat.decided_at != self._known.table.position:
                seat.shunned = ()
                self.decide_again(seat)

    def _request(self, seat: Seat) -> PlacementRequest:
        """Return what is asked for, with what is known of the member's own slot in its group.

        A slot that the attempt has already is kept if it can be: another scheduler may be storing its claim right now.
        """
        group = seat.request.spec.group
        if group is None:
            return seat.request
        seat.older = self._older(seat, group)
        if seat.older is None and not seat.shunned:
            return seat.request
        prefer = seat.request.prefer if seat.older is None else (seat.older.node, *seat.request.prefer)
        return replace(seat.request, prefer=prefer, ignore=(*seat.request.ignore, *seat.shunned))

    def _older(self, seat: Seat, group: GroupRule) -> GroupSlot | None:
        """Return the slot that the attempt has already."""
        mine = (slot for slot in self._known.groups.slots(group.uuid) if slot.instance == seat.instance)
        return next((slot for slot in mine if slot.attempt == seat.attempt), None)

    def drop(self, seat: Seat) -> None:
        """Count a decision no longer that is not stored; one that is stored does not need it."""
        if seat.claim is not None:
            self._known.claims.drop(seat.claim)
        if seat.slot is not None and seat.request.spec.group is not None:
            self._known.groups.drop(seat.request.spec.group.uuid, seat.slot)

    def drop_all(self) -> None:
        """Count no decision any longer that is not stored: the request is over."""
        groups = self._known.groups
        self._known.claims.drop_all([seat.claim for seat in self.seats if seat.claim is not None])
        for seat in self.seats:
            if seat.slot is not None and seat.request.spec.group is not None:
                groups.drop(seat.request.spec.group.uuid, seat.slot)

    def let_go(self) -> None:
        """Count what is decided and not stored no longer while others settle: too few fit, so nobody may keep it."""
        for seat in self.unstored:
            self.drop(seat)
            seat.choice = None

    def shun(self, seat: Seat) -> None:
        """Do not choose this node again for the member: the group's record has no place for it there."""
        assert seat.claim is not None
        seat.shunned = (*seat.shunned, seat.claim.node)

    def wait_for_others(self) -> None:
        """Say of the members without a host that others may yet leave room for them."""
        for seat in self.undecided:
            seat.no = NotReady(reason="other requests are taking the hosts that fitted")

    def give_up(self) -> None:
        """Let the members wait whose choices others took, time and again."""
        for seat in self.unstored:
            self.drop(seat)
            seat.choice, seat.no = None, NotReady(reason="other requests took each host that fitted")

    @property
    def unstored(self) -> list[Seat]:
        """Members with a choice whose claim is not stored yet."""
        return [seat for seat in self.seats if seat.choice is not None and not seat.stored]

    @property
    def undecided(self) -> list[Seat]:
        """Members without a host, although nothing is known that would have to be waited for."""
        return [seat for seat in self.seats if seat.choice is None and not isinstance(seat.no, NotReady)]

    @property
    def too_few(self) -> bool:
        """Whether fewer members have a host than must have, so that none may keep it."""
        return len([seat for seat in self.seats if seat.choice is not None]) < self._min_count

    def answers(self) -> tuple[Decision, ...]:
        """Return the decision of each member, in their order."""
        if not self.too_few:
            return tuple(self._answer(seat) for seat in self.seats)
        refusals = [seat.no for seat in self.seats if seat.no is not None]
        for no in refusals:
            if isinstance(no, NotReady):
                return tuple(no for _ in self.seats)
        refused = next(no for no in refusals if isinstance(no, NoHost))
        explanation, reason = refused.explanation, refused.reason
        fit = len(self.seats) - len(refusals)
        if fit:
            reason = (
                f"{fit} of at least {self._min_count} servers fit, so none was placed; "
                f"for the next one: {reason or explanation.summary()}"
            )
            explanation = replace(explanation, beside=fit)
        return tuple(NoValidHost(explanation=explanation, reason=reason) for _ in self.seats)

    def _find(self, seat: Seat) -> bool:
        """Find the claim that an earlier call of the same attempt made, and tell whether there is one.

        A member of a group must have its place there, too. Another call may have taken it away, to put it beside a
        claim that was not stored then: so the place is asked for once more, and only with it the claim counts.
        """
        group = seat.request.spec.group
        claim = self._known.claim_of((seat.instance, seat.attempt), group.uuid if group is not None else None)
        if claim is None:
            return False
        seat.claim, seat.stored, seat.epoch, seat.no = claim, True, self._known.epoch, None
        row = self._known.table.row_of[claim.node]
        seat.choice = self._known.placement.describe(row, seat.request, seat.instance, salt=self._salt)
        if group is not None:
            self._find_slot(seat, group, claim)
        return True

    def _find_slot(self, seat: Seat, group: GroupRule, claim: Claim) -> None:
        """See whether a claim that was found has its slot; else have it taken, as soon as that can be judged."""
        slot = GroupSlot(seat.instance, seat.attempt, claim.node)
        if self._known.groups.is_stored(group.uuid, slot):
            return
        seat.stored = False
        unknown = self._known.group_unknown(group)
        if unknown is not None:
            seat.choice, seat.no = None, NotReady(reason=unknown)
            return
        seat.older, seat.slot = self._older(seat, group), slot
        self._known.groups.assume(group.uuid, slot)

    def _answer(self, seat: Seat) -> Decision:
        choice = seat.choice
        if choice is None:
            assert seat.no is not None
            if not isinstance(seat.no, NoHost):
                return seat.no
            return NoValidHost(explanation=seat.no.explanation, reason=seat.no.reason)
        return Placed(
            node=choice.node,
            host=choice.host,
            cell=choice.cell,
            zone=choice.zone,
            epoch=seat.epoch or self._known.epoch,
            alternates=choice.alternates,
            allocation=seat.claim.allocation if seat.claim is not None else None,
            explanation=self._explanation(seat, choice),
        )

    def _explanation(self, seat: Seat, choice: Choice) -> Explanation:
        found = choice.explanation
        if self._explains:
            found = self._known.placement.explained(choice, self._request(seat), seat.instance)
        return replace(found, preferred=True) if choice.node in seat.request.prefer else found
