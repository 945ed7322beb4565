"""Tests of the suite that fail because a part of Nova's API is absent, which Skep's own answer or this table says."""

from __future__ import annotations

import re

from skep_lab.tempest.outcomes import Came, SuiteOutcome

REFUSED = re.compile(r"could not be found: (?P<part>[^']+?) (?:is|are) not part of this release")
"""How the API refuses what a release lacks."""

ABSENT: tuple[tuple[str, str], ...] = (
    (r"\.test_list_server_addresses$", "Not part of this release: networks"),
    (r"\.test_remove_server_all_security_groups$", "Not part of this release: security groups"),
)
"""For tests to which another answer leads: a pattern of their names, and why they fail."""


def known(outcome: SuiteOutcome) -> str | None:
    """Return why a test cannot pass; None for one that must."""
    if outcome.came is not Came.FAILED:
        return None
    if refused := REFUSED.search(outcome.why):
        return f"Not part of this release: {refused['part']}"
    return next((why for pattern, why in ABSENT if re.search(pattern, outcome.test)), None)
