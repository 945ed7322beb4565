"""What hangs after a test that failed is ended, and the tests that follow run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from skep.contracts.eventually import PATIENCE

ROOT = Path(__file__).parents[2]
CONFTEST = """
from tests.support import limits

def pytest_configure(config):
    limits.register(config, seconds=0.5)
"""
TESTS = """
import asyncio
import pytest

async def _stays():
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

async def test_fails_and_leaves_what_does_not_end():
    staying = asyncio.create_task(_stays())
    await asyncio.sleep(0)
    pytest.fail("as it is meant to")

def test_follows():
    pass
"""


def test_what_hangs_after_a_failure_is_ended(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_hanging.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\ntimeout = 300\n")
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-p", "no:xdist"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "."],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 1, done.stderr
    assert "as it is meant to" in done.stdout
    assert "1 failed, 1 passed, 1 error" in done.stdout
