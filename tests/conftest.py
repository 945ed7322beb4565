"""For every test: how hypothesis searches, what happens where a part of the system is absent."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from skep.processes.servers.programs import find_program

IN_CI = os.environ.get("CI") == "true"

# A run in CI is repeatable and does not depend on how fast the machine is; at home every run looks elsewhere.
settings.register_profile(
    "ci", derandomize=True, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("dev", deadline=None)
settings.load_profile("ci" if IN_CI else "dev")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Obey `needs_part(name)`: where the program is absent, skip and say so; an error in CI."""
    for marker in item.iter_markers("needs_part"):
        for part in marker.args:
            if find_program(part) is not None:
                continue
            if IN_CI:
                pytest.fail(f"{part} is not installed, and in CI it has to be", pytrace=False)
            pytest.skip(f"{part} is not installed (scripts/system-packages says how)")
