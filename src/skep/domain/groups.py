"""Server groups and what their policies ask of placement."""

from __future__ import annotations

from typing import Literal

import msgspec

from skep.domain.ids import CellUuid, GroupUuid

Policy = Literal["affinity", "anti-affinity", "soft-affinity", "soft-anti-affinity"]

HARD_POLICIES = frozenset({"affinity", "anti-affinity"})


SpreadKey = Literal["host", "rack", "zone"]


class SpreadConstraint(msgspec.Struct, frozen=True, kw_only=True):
    """How evenly members of a group stand over the domains of one kind (`domain/spread.py` reads it)."""

    key: SpreadKey
    max_skew: int
    """By so many members the domain of one more may exceed the domain that has the fewest."""
    hard: bool = True
    """Whether a host that would break it is refused; else it is only worth less."""


class GroupRule(msgspec.Struct, frozen=True, kw_only=True):
    """What a request must know of the group that its servers join."""

    uuid: GroupUuid
    policy: Policy
    max_server_per_host: int = 1
    """Only for anti-affinity (API 2.64)."""
    cells: tuple[CellUuid, ...] | None = None
    """Cells that hold a member; None: not known, so any may. A hard policy waits until these have asserted."""
    spread: tuple[SpreadConstraint, ...] = ()
    """What the server's own hint and flavor ask for beside the policy."""
    epoch: str = ""
    """The epoch of the host states in which `cells` were found. Under another one they are not to be believed: a member
    may have got its cell since, and is not asserted in the new epoch."""

    @property
    def is_hard(self) -> bool:
        """Whether anything of it must hold always, so that all members must be known; else it is a wish."""
        return self.has_hard_policy or any(one.hard for one in self.spread)

    @property
    def has_hard_policy(self) -> bool:
        """Whether the policy by itself must hold always."""
        return self.policy in HARD_POLICIES
