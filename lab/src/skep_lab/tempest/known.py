"""Tests of the suite that fail because a part of Nova's API is absent, which Skep's own answer or this table says."""

from __future__ import annotations

import re

from skep_lab.tempest.outcomes import Came, SuiteOutcome

REFUSED = re.compile(r"could not be found: (?P<part>[^']+?) (?:is|are) not part of this release")
"""How the API refuses what a release lacks."""

ABSENT: tuple[tuple[str, str], ...] = (
    (r"\.test_extensions\.", "what is absent is not in the list of extensions"),
    (r"\.compute\.images\.|StableDeviceRescue", "proxies of the image service"),
    (r"\.test_remove_server_all_security_groups$", "security groups"),
)
"""For tests to which another answer leads: a pattern of their names, and what they need."""


def known(outcome: SuiteOutcome) -> str | None:
    """Return why a test cannot pass; None for one that must."""
    if outcome.came is not Came.FAILED:
        return None
    if refused := REFUSED.search(outcome.why):
        return f"Not part of this release: {refused['part']}"
    return next(
        (f"Not part of this release: {why}" for pattern, why in ABSENT if re.search(pattern, outcome.test)), None
    )
