"""Tests of the suite that cannot pass: a part of Nova's API is absent, or a guest that can be logged into."""

from __future__ import annotations

import re

from skep_lab.tempest.outcomes import Came, SuiteOutcome

REFUSED = re.compile(r"could not be found: (?P<part>[^']+?) (?:is|are) not part of this release")
"""How the API refuses what a release lacks."""

LOGINS = ((r"\.ServerActionsV293TestJSON\.test_rebuild_volume_backed_server$", "Needs a login into the guest"),)
"""For tests that log into guests also where the suite was told not to."""

WITHOUT_NETWORKS: tuple[tuple[str, str], ...] = (
    (r"\.test_list_server_addresses$", "Not part of this release: networks"),
    (r"\.test_remove_server_all_security_groups$", "Not part of this release: security groups"),
)
"""For tests of a cloud without networks to which another answer leads: a pattern of their names, and why they fail."""


def known(outcome: SuiteOutcome, *, networks: bool = False) -> str | None:
    """Return why a test cannot pass; None for one that must. `networks`: whether the cloud has them."""
    if outcome.came is not Came.FAILED:
        return None
    if refused := REFUSED.search(outcome.why):
        return f"Not part of this release: {refused['part']}"
    reasons = LOGINS if networks else (*LOGINS, *WITHOUT_NETWORKS)
    return next((why for pattern, why in reasons if re.search(pattern, outcome.test)), None)
