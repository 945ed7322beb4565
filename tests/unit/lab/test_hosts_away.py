"""An error is justified where faults that cut off hosts had none left, and its own fault says so."""

from __future__ import annotations

import pytest

from skep.domain.builds import Explanation
from skep_lab.chaos.processes import with_hosts_away
from skep_lab.witnesses.witness import Findings

NONE = "No valid host was found. "
UNHEARD = Explanation(considered=1, verdict="not_now", could_hold=1, not_reported=1).advice()
DOWN = "it would fit on a host that is down or disabled; 1 host could hold it if empty, up and enabled"
TOO_LARGE = "it would fit with 1 VCPU less; no host could ever hold it, even one that is empty, up and enabled"


def left(fault: str) -> Findings:
    """Return what is left of findings of an ERROR with this fault, and of another server that is lost."""
    return with_hosts_away(Findings(errors_unjustified=(f"u (one) is ERROR: {fault}",), lost=("two",)))


@pytest.mark.parametrize("advice", [UNHEARD, DOWN])
def test_a_host_that_was_away_would_have_done(advice: str) -> None:
    assert left(NONE + advice) == Findings(lost=("two",))


@pytest.mark.parametrize("fault", [NONE + TOO_LARGE, "The build failed.", ""])
def test_any_other_error_is_told(fault: str) -> None:
    assert len(left(fault).errors_unjustified) == 1
