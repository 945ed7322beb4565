"""One name, one thing: the name of a public class stands for one class, but for these."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]

OF_SERVICES = "what each service does about the noun, in the file of that name"
OF_SETTINGS = "the section of the configuration, and what the part is told of it"
OF_STEPS = "the port of the agent, and what keeps it"

MAY_RECUR = {
    "Action": "the facts of an action, and the row about one that a user asked for",
    "Aggregate": "as the database and the placement engine have it",
    "ApiSettings": OF_SETTINGS,
    "Beats": "of a cell: sent by its conductor, kept by the schedulers",
    "Builds": OF_SERVICES,
    "ComputeSettings": OF_SETTINGS,
    "Deletes": OF_SERVICES,
    "Group": "of resources that a server asks for, and of rules for ports",
    "GroupRule": "of a server group, and of a security group as hosts have it",
    "GuestQuestions": OF_SERVICES,
    "Guests": OF_SERVICES,
    "Hearing": "who was heard: noted by a cell conductor, kept by the schedulers",
    "Hosts": OF_SERVICES,
    "IdentitySettings": OF_SETTINGS,
    "ImagesSettings": OF_SETTINGS,
    "Messaging": "how an agent reaches its cell: as the admin API tells it, and as the agent reads it",
    "Moves": OF_SERVICES,
    "NetworksSettings": OF_SETTINGS,
    "OpenAttempt": "as the host's ledger counts it, and as the row of its cell has it",
    "Parts": "what the tasks of a conductor work with",
    "Recovery": OF_SERVICES,
    "Reporting": "of host states: by the agent, and to the schedulers",
    "SchedulerSettings": OF_SETTINGS,
    "StepRun": OF_STEPS,
    "Steps": OF_STEPS,
}
"""Name -> why it recurs. A class that stands for something else gets a name that says so, instead of a row here."""


def found() -> dict[str, list[str]]:
    """Return the files of each public class that stands at the top of a module."""
    names: dict[str, list[str]] = defaultdict(list)
    for sources in (ROOT / "src", ROOT / "lab" / "src"):
        for path in sorted(sources.rglob("*.py")):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    names[node.name].append(str(path.relative_to(ROOT)))
    return names


def test_a_name_stands_for_one_class() -> None:
    recurring = {name: files for name, files in found().items() if len(files) > 1}
    assert {name: files for name, files in recurring.items() if name not in MAY_RECUR} == {}
    assert set(MAY_RECUR) - set(recurring) == set(), "these recur no more: their rows go"
