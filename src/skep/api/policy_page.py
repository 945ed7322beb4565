"""The tables of docs/policy.md, made from the rules and the routes: who may do what under the defaults.

`python -m skep.api.policy_page docs/policy.md` writes them between their marks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from skep.api.marked_pages import replaced
from skep.api.microversions import MAXIMUM, MINIMUM, text
from skep.api.policy import Policy
from skep.api.policy_rules import ASKED_INSIDE, BASE, OWN_DEFAULTS, RULES
from skep.api.roles import ANY_SCOPE, ANY_TOKEN
from skep.api.routes import ROUTES
from skep.api.routing import Route
from skep.domain.context import DomainContext, RequestContext
from skep.domain.ids import ProjectId, RequestId, UserId

BEGIN, END = "<!-- rules: made by skep.api.policy_page -->", "<!-- end of rules -->"


@dataclass(frozen=True, slots=True)
class PolicyCaller:
    """A column: a caller with the roles that usually go together."""

    title: str
    context: RequestContext


def caller(*roles: str, system: bool = False, domain: str | None = None) -> RequestContext:
    """Return a caller of the project `own`, or one whose token is for the system or a domain."""
    request, user = RequestId("req-policy"), UserId("caller")
    if domain is not None:
        return DomainContext(request_id=request, user_id=user, roles=roles, domain_id=domain)
    project = ProjectId("" if system else "own")
    return RequestContext(request_id=request, project_id=project, user_id=user, roles=roles, system_scope=system)


_WITHOUT_RULE = {ANY_TOKEN: "every token of a project", ANY_SCOPE: "every token"}

_ADMIN_ROLES = ("admin", "manager", "member", "reader")

CALLERS: tuple[PolicyCaller, ...] = (
    PolicyCaller("other role", caller("other")),
    PolicyCaller("reader", caller("reader")),
    PolicyCaller("member", caller("member", "reader")),
    PolicyCaller("manager", caller("manager", "member", "reader")),
    PolicyCaller("admin", caller(*_ADMIN_ROLES)),
    PolicyCaller("service", caller("service")),
    PolicyCaller("admin of the system", caller(*_ADMIN_ROLES, system=True)),
    PolicyCaller("admin of a domain", caller(*_ADMIN_ROLES, domain="default")),
)


def render() -> str:
    """Return the three tables."""
    policy = Policy()
    routed = {route.rule for route in ROUTES}
    rest = [rule.name for rule in RULES if rule not in BASE and rule.name not in routed]
    inside, absent = (
        [name for name in rest if (name in ASKED_INSIDE) is asked and name not in routed] for asked in (True, False)
    )
    return "\n".join(
        [
            "## Routes",
            "",
            *_head("route", "rule"),
            *(_line(policy, route.rule, _route(route), _rule(route.rule)) for route in ROUTES),
            "",
            "## Rules that are asked beside that of the route",
            "",
            *_head("rule"),
            *(_line(policy, name, f"`{name}`") for name in inside),
            "",
            "## Rules of what Skep does not serve",
            "",
            "They may stand in a policy file and change nothing.",
            "",
            *_head("rule"),
            *(_line(policy, name, f"`{name}`") for name in absent),
            "",
            "## Defaults that are not Nova's",
            "",
            *(f"- `{name}`: {said}." for name, said in OWN_DEFAULTS.items()),
        ]
    )


def whose(policy: Policy, rule: str, context: RequestContext) -> str:
    """Return whose things the rule allows a caller: all, those of his project, his own, or none."""
    if policy.allows(rule, context, project_id="foreign", user_id="foreign"):
        return "all"
    if policy.allows(rule, context, project_id=context.project_id, user_id="foreign"):
        return "project"
    return "own" if policy.allows(rule, context) else "-"


def _head(*titles: str) -> Iterator[str]:
    columns = [*titles, *(one.title for one in CALLERS)]
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"


def _line(policy: Policy, rule: str, *cells: str) -> str:
    return f"| {' | '.join([*cells, *(whose(policy, rule, one.context) for one in CALLERS)])} |"


def _rule(name: str) -> str:
    return _WITHOUT_RULE.get(name, f"`{name}`")


def _route(route: Route) -> str:
    action = f" `{route.action}`" if route.action else ""
    since = "" if route.since == MINIMUM else f" since {text(route.since)}"
    until = "" if route.until == MAXIMUM else f" until {text(route.until)}"
    return f"`{route.method} {route.path}`{action}{since}{until}"


def written_into(page: str) -> str:
    """Return the page with the tables between its marks. Raises ValueError for a page without marks."""
    return replaced(page, BEGIN, END, render())


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(written_into(file.read_text()))
