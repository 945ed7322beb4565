from __future__ import annotations

from pathlib import Path

import pytest

from skep.api import policy_page
from skep.api.policy import Policy
from skep.api.policy_page import CALLERS, whose
from skep.api.policy_rules import ASKED_INSIDE, BASE, FORMER, OWN_DEFAULTS, RULES
from skep.api.routes import ROUTES

ROOT = Path(__file__).parents[3]
NAMES = {rule.name for rule in RULES}


def test_the_tables_in_the_docs_are_those_of_the_rules() -> None:
    page = (ROOT / "docs" / "policy.md").read_text()
    assert page == policy_page.written_into(page), "run: python -m skep.api.policy_page docs/policy.md"
    with pytest.raises(ValueError, match="the page has no lines"):
        policy_page.written_into("a page")


def test_what_is_asked_is_there() -> None:
    assert ASKED_INSIDE <= NAMES
    assert {route.rule for route in ROUTES} <= NAMES
    assert set(FORMER) | set(OWN_DEFAULTS) <= NAMES


def test_what_handlers_ask_beside_stands_in_their_text() -> None:
    source = ROOT / "src" / "skep"
    files = [path for folder in ("handlers", "creating") for path in (source / "api" / folder).rglob("*.py")]
    text = "".join(path.read_text() for path in (*files, source / "domain" / "leaving.py"))
    unseen = [
        name
        for name in ASKED_INSIDE
        if f'"{name}"' not in text
        and not any(f'}}:{":".join(name.split(":")[at:])}"' in text for at in range(1, name.count(":") + 1))
    ]
    assert unseen == []


def test_only_what_asks_no_rule_is_for_tokens_of_other_scopes() -> None:
    policy = Policy()
    for rule in RULES:
        if rule in BASE:
            continue
        beyond = {one.title: whose(policy, rule.name, one.context) for one in CALLERS[-2:]}
        assert beyond == {"admin of the system": "-", "admin of a domain": "-"}, rule.name


def test_an_admin_may_all_that_anybody_may() -> None:
    policy = Policy()
    admin = next(one for one in CALLERS if one.title == "admin")
    for rule in RULES:
        if rule not in BASE:
            assert whose(policy, rule.name, admin.context) == "all", rule.name
