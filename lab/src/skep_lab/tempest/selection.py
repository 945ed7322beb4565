"""Which tests of the suite run."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence

from skep_lab.tempest.outcomes import name_of

COMPUTE = r"^tempest\.(serial_tests\.)?api\.compute\."


def chosen(everything: Sequence[str], asked: argparse.Namespace) -> list[str]:
    """Return the tests that are asked for, each with the tags that the runner knows it by."""
    pattern = asked.regex or (COMPUTE if asked.list is None else "")
    found = [test for test in everything if re.search(pattern, test)]
    if asked.exclude:
        found = [test for test in found if not re.search(asked.exclude, test)]
    if asked.list is None:
        return found
    lines = (line.partition("#")[0].strip() for line in asked.list.read_text().splitlines())
    wanted = {name_of(line) for line in lines if line}
    return [test for test in found if {name_of(test), name_of(test).rpartition(".")[0]} & wanted]
