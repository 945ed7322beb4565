"""The last release beside this code: the newest tag.

A copy of the sources without tags has none to try: these tests are skipped then, saying so, and fail instead where
`SKEP_TAGS=required` says that there must be one.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from skep.testing.last_release import WHY_NOT, unpacked


@pytest.fixture
def last_release(tmp_path: Path) -> Path:
    """The sources of the newest tag, unpacked."""
    sources = unpacked(tmp_path)
    if sources is not None:
        return sources
    if os.environ.get("SKEP_TAGS") == "required":
        pytest.fail(WHY_NOT)
    pytest.skip(WHY_NOT)
