"""An operator's policy file: what it says, and what of it cannot mean anything."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml
from oslo_policy.policy import Rules

from skep.api.policy_rules import FORMER, RULES
from skep.domain.errors import Misconfigured

MAX_BYTES = 1024 * 1024
"""Of a policy file; Nova's whole sample has a twentieth of it."""

logging.getLogger("oslo_policy").setLevel(logging.CRITICAL + 1)
"""What it would say of a file, with tracebacks, `problems` says in a line."""

_REFERENCE = re.compile(r"(?<![\w:])rule:([^\s()]+)")

DEFAULTS: Mapping[str, str] = {rule.name: rule.check for rule in RULES}
FORMER_NAMES = frozenset(name for name, _check in FORMER.values())


@dataclass(frozen=True, slots=True)
class PolicyProblem:
    """A line of a policy file that does not do what its writer may expect."""

    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


def read(path: Path) -> dict[str, str]:
    """Return the rules of a file by name.

    Raises Misconfigured for a file that is not there, not readable, or no map of names to checks.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise Misconfigured(f"policy file {path}: there is no such file") from None
    except OSError as error:
        raise Misconfigured(f"policy file {path}: {error.strerror}") from error
    if len(raw) > MAX_BYTES:
        raise Misconfigured(f"policy file {path}: expected at most {MAX_BYTES} bytes, got more")
    try:
        parsed = yaml.safe_load(raw)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise Misconfigured(f"policy file {path}: expected YAML, got {error}") from error
    if parsed is None:
        return {}
    if not isinstance(parsed, dict):
        raise Misconfigured(f"policy file {path}: expected names with checks, got {type(parsed).__name__}")
    for name, check in parsed.items():
        if not isinstance(name, str) or not isinstance(check, str):
            raise Misconfigured(f"policy file {path}: {name}: expected a check in quotes, got {check!r}")
    return parsed


def problems(rules: Mapping[str, str]) -> Iterator[PolicyProblem]:
    """Yield what of a file has no effect, or not the one that it seems to have."""
    used = {name for check in rules.values() for name in _REFERENCE.findall(check)}
    for name, check in rules.items():
        if name not in DEFAULTS and name not in FORMER_NAMES and name not in used:
            yield PolicyProblem(name, "no rule of this name is ever asked")
        if check.strip() != "!" and str(Rules.from_dict({name: check})[name]) == "!":
            yield PolicyProblem(name, f"expected a check, got {check!r}: it allows nobody")
        for other in dict.fromkeys(_REFERENCE.findall(check)):
            if other not in DEFAULTS and other not in rules:
                yield PolicyProblem(name, f"there is no rule {other}: that part allows nobody")
    yield from _circles(rules)


def _circles(rules: Mapping[str, str]) -> Iterator[PolicyProblem]:
    """Yield rules that are made of themselves."""
    all_rules = {**DEFAULTS, **rules}
    parts = {name: [one for one in _REFERENCE.findall(check) if one in all_rules] for name, check in all_rules.items()}
    done: set[str] = set()
    for start in rules:
        path: dict[str, Iterator[str]] = {start: iter(parts[start])} if start not in done else {}
        while path:
            name, rest = next(reversed(path.items()))
            inner = next(rest, None)
            if inner is None:
                done.add(name)
                del path[name]
            elif inner in path:
                yield PolicyProblem(inner, f"it is made of itself, by way of {name}: it allows nobody")
                done.add(inner)
            elif inner not in done:
                path[inner] = iter(parts[inner])
