"""What all tests with guests of QEMU have."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def _usual_umask() -> Iterator[None]:
    """Make files as a shell would: clouds of tests before, in this process, may have set a strict umask."""
    before = os.umask(0o022)
    yield
    os.umask(before)
