"""The former import paths of what is in `skep.contracts`, and the commands of the laboratory.

They work in 0.7 with a DeprecationWarning; in 0.8 this package goes.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from runpy import run_module
from warnings import warn


def moved(former: str, present: str) -> None:
    """Warn the module that imports a former path."""
    warn(f"{former} is {present} since Skep 0.7; the former path goes in 0.8", DeprecationWarning, stacklevel=3)


def run_in_laboratory(former: str, present: str) -> None:
    """Run a command that moved to the laboratory, with the arguments of this process."""
    sys.stderr.write(f"python -m {former} is python -m {present} since Skep 0.7; the former name goes in 0.8\n")
    if find_spec(present.partition(".")[0]) is None:
        sys.exit("the laboratory is not installed: scripts/bootstrap lab")
    run_module(present, run_name="__main__", alter_sys=True)
