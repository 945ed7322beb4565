"""What a scheduler knows that stands in no record, so that all of it can be written down and known again."""

from __future__ import annotations

import msgspec

from skep.domain.claims import Claim
from skep.domain.ids import GroupUuid
from skep.placement.groups import GroupSlot
from skep.placement.hosts.beats import BeatState
from skep.placement.hosts.mix import MixState


class Unrecorded(msgspec.Struct, frozen=True, kw_only=True):
    """When things were seen, and what is decided and not stored. Times are seconds of one monotonic clock."""

    epoch: str
    beats: tuple[BeatState, ...] = ()
    awaits_states: bool = False
    awaits_until: float | None = None
    told_since: dict[str, float] = {}
    """Since when each namespace of another service has had states."""
    now: float = 0.0
    """When that was last looked at."""
    run: str = ""
    others: tuple[str, ...] = ()
    """The schedulers that share the hosts with this one, `run`."""
    claims: tuple[Claim, ...] = ()
    """Assumed ones."""
    slots: tuple[tuple[GroupUuid, GroupSlot], ...] = ()
    """Assumed ones."""
    mix: MixState = MixState()
    """What is asked for lately."""
