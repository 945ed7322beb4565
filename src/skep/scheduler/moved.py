"""The import paths of the engine before 0.7: `skep.scheduler.NAME` is `skep.placement.NAME`.

Plug-ins name these paths. They work in 0.7 with a DeprecationWarning; in 0.8 this file goes.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

FORMER = "skep.scheduler."
PRESENT = "skep.placement."
MOVED = frozenset(
    {
        "batch",
        "capacity",
        "choice",
        "claims",
        "deciding",
        "emptied",
        "explain",
        "filters",
        "groups",
        "host_conditions",
        "hosts",
        "knowledge",
        "options",
        "placement",
        "plugins",
        "prefilters",
        "ranking",
        "registry",
        "request",
        "settings",
        "slots",
        "spreading",
        "unrecorded",
        "weighers",
    }
)
"""The modules and packages of `skep.scheduler` that moved."""


def is_former(name: str) -> bool:
    """Tell whether a module's name is a former path."""
    return name.startswith(FORMER) and name.removeprefix(FORMER).partition(".")[0] in MOVED


class FormerPaths(MetaPathFinder, Loader):
    """Finds a module by its former path: the module itself, not a copy, so that classes stay what they are."""

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,  # noqa: ARG002  # the signature of a finder
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Return how to load a module that moved; None for every other."""
        return ModuleSpec(name, self) if is_former(name) else None

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave it to Python to make a module, which `exec_module` replaces."""

    def exec_module(self, module: ModuleType) -> None:
        """Put the module of the present path in the place of an empty one. Raises ImportError if there is none."""
        former = module.__name__
        present = PRESENT + former.removeprefix(FORMER)
        if former.removeprefix(FORMER) in MOVED:  # what is in a package comes after the package, which has warned
            warnings.warn(
                f"{former} is {present} since Skep 0.7; the former path goes in 0.8", DeprecationWarning, stacklevel=2
            )
        sys.modules[former] = import_module(present)


def install() -> None:
    """Have former paths found, once: before files are looked for, which would be loaded a second time."""
    if not any(isinstance(finder, FormerPaths) for finder in sys.meta_path):
        sys.meta_path.insert(0, FormerPaths())
