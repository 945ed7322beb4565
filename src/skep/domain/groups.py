"""Server groups and what their policies ask of placement."""

from __future__ import annotations

from typing import Literal

import msgspec

from skep.domain.ids import CellUuid, GroupUuid

Policy = Literal["affinity", "anti-affinity", "soft-affinity", "soft-anti-affinity"]

HARD_POLICIES = frozenset({"affinity", "anti-affinity"})


class GroupRule(msgspec.Struct, frozen=True, kw_only=True):
    """What a request must know of the group that its servers join."""

    uuid: GroupUuid
    policy: Policy
    max_server_per_host: int = 1
    """Only for anti-affinity (API 2.64)."""
    cells: tuple[CellUuid, ...] | None = None
    """Cells that hold a member; None: not known, so any may. A hard policy waits until these have asserted."""
    epoch: str = ""
    """The epoch of the host states in which `cells` were found. Under another one they are not to be believed: a member
    may have got its cell since, and nobody has told the new epoch of it."""

    @property
    def is_hard(self) -> bool:
        """Whether the policy must hold always (and so takes slots), or is a wish."""
        return self.policy in HARD_POLICIES
