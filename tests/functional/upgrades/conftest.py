"""Releases beside this code: the first from which a rolling upgrade is possible, and the last before these sources."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from skep_lab.releases import Release, installed, is_in_history, upgraded_from, why_not


def in_history(release: Release) -> Release:
    """Return a release. Skips, saying so, where the git history lacks its commit; in CI that is a failure."""
    if is_in_history(release):
        return release
    if os.environ.get("CI") == "true":
        pytest.fail(why_not(release), pytrace=False)
    pytest.skip(why_not(release))


@pytest.fixture
def needs() -> Callable[[Release], Release]:
    """What a test calls that needs the tree of a release."""
    return in_history


@pytest.fixture(params=upgraded_from(), ids=lambda release: release.version)
def other_release(request: pytest.FixtureRequest) -> Path:
    """The interpreter that runs another release, each in turn."""
    interpreter = installed(in_history(request.param))
    assert interpreter is not None
    return interpreter
