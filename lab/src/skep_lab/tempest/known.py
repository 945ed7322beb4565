"""Tests of the suite that fail because a part of Nova's API is absent, which Skep's own answer or this table says."""

from __future__ import annotations

import re

from skep_lab.tempest.outcomes import Came, SuiteOutcome

REFUSED = re.compile(r"could not be found: (?P<part>[^']+?) (?:is|are) not part of this release")
"""How the API refuses what a release lacks."""

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
    if networks:
        return None
    return next((why for pattern, why in WITHOUT_NETWORKS if re.search(pattern, outcome.test)), None)
