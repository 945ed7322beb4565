from __future__ import annotations

import os
from pathlib import Path

import pytest

from skep.api import policy_file
from skep.api.policy import LOOK_SECONDS, Policy
from skep.api.policy_file import PolicyProblem
from skep.api.policy_rules import FORMER, RULES
from skep.domain.errors import Misconfigured
from tests.unit.api.test_policy import ADMIN_ONLY, CREATE, SHOW, caller


class Watch:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def write(file: Path, text: str) -> None:
    """Write a file so that its age differs even where the clock of files is coarse."""
    before = file.stat().st_mtime_ns if file.exists() else 0
    file.write_text(text)
    os.utime(file, ns=(before + 10**9, before + 10**9))


def test_a_changed_file_is_taken_over(tmp_path: Path) -> None:
    file, watch = tmp_path / "policy.yaml", Watch()
    write(file, f'"{CREATE}": "role:baker"\n')
    policy = Policy(str(file), now=watch)
    assert policy.allows(CREATE, caller("baker"))
    write(file, f'"{CREATE}": "role:miller"\n')
    assert policy.allows(CREATE, caller("baker")), "not looked at so soon again"
    watch.seconds += LOOK_SECONDS
    assert not policy.allows(CREATE, caller("baker"))
    assert policy.allows(CREATE, caller("miller"))
    assert policy.checks[CREATE] == "role:miller"


@pytest.mark.parametrize("text", ["a: [b\n", "- a\n", f'"{CREATE}": 7\n', None])
def test_a_file_that_cannot_be_read_leaves_the_former_rules(tmp_path: Path, text: str | None) -> None:
    file, watch = tmp_path / "policy.yaml", Watch()
    write(file, f'"{CREATE}": "role:baker"\n')
    policy = Policy(str(file), now=watch)
    if text is None:
        file.unlink()
    else:
        write(file, text)
    watch.seconds += LOOK_SECONDS
    assert policy.allows(CREATE, caller("baker"))
    write(file, f'"{CREATE}": "role:miller"\n')
    watch.seconds += LOOK_SECONDS
    assert policy.allows(CREATE, caller("miller"))


def test_former_names_mean_what_they_were_split_into(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text('"os_compute_api:os-services": "role:ops"\n')
    policy = Policy(str(file))
    for operation in ("list", "update", "delete"):
        assert policy.allows(f"os_compute_api:os-services:{operation}", caller("ops"))
        assert not policy.allows(f"os_compute_api:os-services:{operation}", caller("admin"))
    file.write_text(f'"os_compute_api:os-services": "role:ops"\n"{ADMIN_ONLY}": "role:chief"\n')
    policy = Policy(str(file))
    assert not policy.allows(ADMIN_ONLY, caller("ops")), "its own name counts more"


def test_all_of_novas_names_and_former_names_load_without_a_word(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    former = {name for name, _check in FORMER.values()}
    file.write_text("".join(f'"{name}": "@"\n' for name in sorted({rule.name for rule in RULES} | former)))
    told: list[PolicyProblem] = []
    policy = Policy(str(file), tell=told.append)
    assert told == []
    assert all(policy.allows(rule.name, caller()) for rule in RULES)


@pytest.mark.parametrize(
    ("rules", "rule", "part"),
    [
        ({"nonsense": "@"}, "nonsense", "no rule of this name"),
        ({SHOW: "rule:nobody"}, SHOW, "there is no rule nobody"),
        ({SHOW: "what is this"}, SHOW, "expected a check"),
        ({"context_is_admin": "rule:admins", "admins": "rule:context_is_admin"}, "context_is_admin", "made of itself"),
        ({SHOW: f"role:x or rule:{SHOW}"}, SHOW, "made of itself"),
    ],
)
def test_lines_without_their_effect_are_named(rules: dict[str, str], rule: str, part: str) -> None:
    found = list(policy_file.problems(rules))
    assert [one.rule for one in found] == [rule]
    assert part in str(found[0])


@pytest.mark.parametrize("check", ["!", "@", "", "role:a and not role:b", "(rule:context_is_admin) or user_id:u"])
def test_lines_with_their_effect_are_not(check: str) -> None:
    assert list(policy_file.problems({SHOW: check})) == []


def test_own_names_may_be_parts() -> None:
    assert list(policy_file.problems({"ours": "role:a", SHOW: "rule:ours"})) == []


def test_a_long_chain_of_rules_is_looked_through_once() -> None:
    chain = {f"r{i}": f"rule:r{i + 1}" for i in range(5000)}
    assert [one.rule for one in policy_file.problems({**chain, "r5000": "@"})] == ["r0"]


def test_too_much_is_no_policy_file(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(f'"{SHOW}": "@"\n' + "#" * policy_file.MAX_BYTES)
    with pytest.raises(Misconfigured, match="expected at most"):
        policy_file.read(file)
