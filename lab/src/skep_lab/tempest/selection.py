"""Which tests of the suite run."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence

from skep_lab.tempest.outcomes import name_of

COMPUTE = r"^tempest\.(serial_tests\.)?api\.compute\."
LOGINS = (
    COMPUTE + r"(servers\.test_(create_server|server_actions|attach_interfaces|novnc)\."
    r"|admin\.test_(create_server|live_migration)\.)"
    r"|^tempest\.scenario\.test_(network|server)_basic_ops\."
)
"""Of tests that want a guest: most log into it."""


def chosen(everything: Sequence[str], asked: argparse.Namespace, usual: str = COMPUTE) -> list[str]:
    """Return the tests that are asked for, or that are usual, each with the tags that the runner knows it by."""
    pattern = asked.regex or (usual if asked.list is None else "")
    found = [test for test in everything if re.search(pattern, test)]
    if asked.exclude:
        found = [test for test in found if not re.search(asked.exclude, test)]
    if asked.list is None:
        return found
    lines = (line.partition("#")[0].strip() for line in asked.list.read_text().splitlines())
    wanted = {name_of(line) for line in lines if line}
    return [test for test in found if {name_of(test), name_of(test).rpartition(".")[0]} & wanted]
