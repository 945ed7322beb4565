from __future__ import annotations

from pathlib import Path

import pytest

from skep.api.policy import Policy
from skep.api.policy_rules import RULES
from skep.domain.context import RequestContext
from skep.domain.errors import Forbidden, Misconfigured
from skep.domain.ids import ProjectId, RequestId, UserId

POLICY = Policy()
SHOW = "os_compute_api:servers:show"
CREATE = "os_compute_api:servers:create"
ADMIN_ONLY = "os_compute_api:os-services:list"


def caller(*roles: str, project: str = "p", user: str = "u", system: bool = False) -> RequestContext:
    return RequestContext(
        request_id=RequestId("req-1"),
        project_id=ProjectId(project),
        user_id=UserId(user),
        roles=roles,
        system_scope=system,
    )


@pytest.mark.parametrize(
    ("roles", "rule", "own", "foreign"),
    [
        (("reader",), SHOW, True, False),
        (("reader",), CREATE, False, False),
        (("member", "reader"), CREATE, True, False),
        (("admin", "member", "reader"), CREATE, True, True),
        (("member", "reader"), ADMIN_ONLY, False, False),
        (("admin",), ADMIN_ONLY, True, True),
        (("service",), SHOW, False, False),
        ((), SHOW, False, False),
    ],
)
def test_novas_defaults(roles: tuple[str, ...], rule: str, own: bool, foreign: bool) -> None:
    for _ in range(2):  # asked, then remembered
        assert POLICY.allows(rule, caller(*roles)) is own
        assert POLICY.allows(rule, caller(*roles), project_id="other") is foreign


def test_a_system_token_has_no_project_to_act_in() -> None:
    assert not POLICY.allows(ADMIN_ONLY, caller("admin", system=True))


def test_a_no_reads_as_novas() -> None:
    with pytest.raises(Forbidden, match=r"^Policy doesn't allow os_compute_api:servers:create to be performed\.$"):
        POLICY.enforce(CREATE, caller("reader"))


def test_an_unknown_rule_is_a_bug() -> None:
    with pytest.raises(KeyError):
        POLICY.allows("os_compute_api:nonsense", caller("admin"))


def test_every_rule_can_be_asked() -> None:
    for rule in RULES:
        POLICY.allows(rule.name, caller("admin"))
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_a_file_replaces_rules_and_may_name_ids(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(f'"{CREATE}": "project_id:vip"\n')
    policy = Policy(str(file))
    assert policy.allows(CREATE, caller("reader", project="vip"))
    assert not policy.allows(CREATE, caller("member", "reader", project="p"))
    assert policy.allows(SHOW, caller("reader"))


def test_a_file_that_cannot_be_used_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="no such file"):
        Policy(str(tmp_path / "absent.yaml"))
    broken = tmp_path / "broken.yaml"
    broken.write_text("a: [b\n")
    with pytest.raises(Misconfigured):
        Policy(str(broken))
