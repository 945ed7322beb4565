"""The configuration file of an enrolled host: what the enrolment says of it, amid what the operator has added."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path

from skep.domain.errors import Misconfigured

Sections = Mapping[str, Mapping[str, str | None]]
"""By section and key: what the enrolment says; None: nothing, any more."""


def fresh(mark: str, said: Sections) -> str:
    """Return a file that says this and nothing else."""
    lines = [mark]
    for section, keys in said.items():
        lines += ["", f"[{section}]", *_lines(keys)]
    return "\n".join([*lines, ""])


def renewed(config: Path, before: str, mark: str, said: Sections) -> str:
    """Return the file with what the enrolment says now; all else in it is the operator's, and stays.

    `before`: what is in it. Raises Misconfigured where that cannot be changed line by line.
    """
    after = "\n".join([mark, *_changed(before.splitlines()[1:], said), ""])
    try:
        wanted = tomllib.loads(before)
        for section, keys in said.items():
            mine = wanted.setdefault(section, {})
            for key, value in keys.items():
                mine.pop(key, None)
                if value is not None:
                    mine[key] = value
        if tomllib.loads(after) == wanted:
            return after
    except (tomllib.TOMLDecodeError, AttributeError):
        pass  # told of below
    names = ", ".join(f"{section}.{key}" for section, keys in said.items() for key in keys)
    raise Misconfigured(
        f"{config} is written in a form that cannot be changed line by line: move it away, enrol again, and put back "
        f"what you had added (all but {names})"
    )


def _changed(lines: list[str], said: Sections) -> list[str]:
    """Return the lines with other values of the keys that are said, each first in its section."""
    changed: list[str] = []
    missing = dict(said)
    section = ""
    for line in lines:
        start = line.strip()
        if start.startswith("["):
            section = start[1:].partition("]")[0].strip()
            changed.append(line)
            changed += _lines(missing.pop(section, {}))
        elif line.partition("=")[0].strip() not in said.get(section, ()):
            changed.append(line)
    for name, keys in missing.items():
        changed += ["", f"[{name}]", *_lines(keys)]
    return changed


def _lines(keys: Mapping[str, str | None]) -> list[str]:
    return [f"{key} = {json.dumps(value)}" for key, value in keys.items() if value is not None]
