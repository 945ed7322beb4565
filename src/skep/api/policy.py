"""Who may do what: oslo.policy with Nova's rule names, its answers remembered.

A check by oslo.policy costs some tens of microseconds. Nova's defaults look at nothing but roles, scope, and whether
caller and target are of one project and user, so an answer is good for every caller alike in these. A policy file may
also compare with particular ids; with one, the ids are part of what an answer is remembered by.

A changed file is taken over within a second of the next request. One that cannot be read then leaves the former rules
in force, and the log says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog
from oslo_config import cfg
from oslo_policy import opts as policy_options
from oslo_policy import policy as oslo

from skep.api import policy_file as files
from skep.api.policy_file import PolicyProblem
from skep.api.policy_rules import FORMER, RULES
from skep.domain.context import DomainContext, RequestContext
from skep.domain.errors import Forbidden, Misconfigured

log = structlog.get_logger("skep.api.policy")

MAX_REMEMBERED = 10_000
"""Answers kept; when there are more, all are forgotten."""
LOOK_SECONDS = 1.0
"""Between two looks whether the file has changed."""


def _log_problem(problem: PolicyProblem) -> None:
    log.warning("a line of the policy file has another effect than it seems to have", line=str(problem))


class Policy:
    """The rules in force: Nova's defaults, some of them replaced by an operator's file."""

    def __init__(
        self,
        policy_file: str | None = None,
        *,
        now: Callable[[], float] = time.monotonic,
        tell: Callable[[PolicyProblem], None] = _log_problem,
    ) -> None:
        """`now` counts seconds; `tell` hears which lines of a file do not do what they seem to.

        Raises Misconfigured when the file cannot be used.
        """
        self._file = None if policy_file is None else Path(policy_file)
        self._now = now
        self._tell = tell
        self._remembered: dict[tuple[object, ...], bool] = {}
        self._look_at = now() + LOOK_SECONDS
        self._seen = _signature(self._file)
        self._enforcer = _enforcer(self._file, tell)

    @property
    def checks(self) -> dict[str, str]:
        """The checks in force by the names of their rules."""
        self._follow_file()
        return {name: str(self._enforcer.rules[name]) for name in self._enforcer.registered_rules}

    def allows(
        self, rule: str, context: RequestContext, *, project_id: str | None = None, user_id: str | None = None
    ) -> bool:
        """Tell whether the caller may act under `rule` on what belongs to that project and user (unsaid: the caller).

        Raises KeyError for a rule that does not exist: a bug of the caller.
        """
        self._follow_file()
        project = context.project_id if project_id is None else project_id
        user = context.user_id if user_id is None else user_id
        domain = context.domain_id if isinstance(context, DomainContext) else None
        key: tuple[object, ...] = (
            rule,
            context.roles,
            context.system_scope,
            domain is None,
            project == context.project_id,
            user == context.user_id,
        )
        if self._file is not None:
            domains = (domain, context.project_domain_id, context.user_domain_id)
            key = (*key, context.project_id, context.user_id, project, user, *domains)
        known = self._remembered.get(key)
        if known is None:
            known = self._ask(rule, context, domain, project, user)
            if len(self._remembered) >= MAX_REMEMBERED:
                self._remembered.clear()
            self._remembered[key] = known
        return known

    def enforce(
        self, rule: str, context: RequestContext, *, project_id: str | None = None, user_id: str | None = None
    ) -> None:
        """Raise Forbidden unless `allows` says yes."""
        if not self.allows(rule, context, project_id=project_id, user_id=user_id):
            raise Forbidden(f"Policy doesn't allow {rule} to be performed.")

    def _ask(self, rule: str, context: RequestContext, domain: str | None, project_id: str, user_id: str) -> bool:
        if rule not in self._enforcer.registered_rules:
            raise KeyError(rule)
        credentials: dict[str, Any] = {
            "roles": list(context.roles),
            "project_id": context.project_id,
            "tenant": context.project_id,
            "user_id": context.user_id,
            "project_domain_id": context.project_domain_id,
            "user_domain_id": context.user_domain_id,
            "is_admin": context.is_admin,
            "system_scope": "all" if context.system_scope else None,
            "domain_id": domain,
        }
        target = {"project_id": project_id, "user_id": user_id}
        return bool(self._enforcer.enforce(rule, target, credentials))

    def _follow_file(self) -> None:
        """Take over the file if it has changed."""
        if self._file is None or self._now() < self._look_at:
            return
        self._look_at = self._now() + LOOK_SECONDS
        seen = _signature(self._file)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._enforcer = _enforcer(self._file, self._tell)
        except Misconfigured as error:
            log.error("a changed policy file was not taken over", file=str(self._file), reason=str(error))
            return
        self._remembered.clear()
        log.info("a changed policy file was taken over", file=str(self._file))


def _signature(file: Path | None) -> tuple[int, int, int] | None:
    """Return what changes when a file is written or replaced; None where there is none."""
    try:
        found = file.stat() if file is not None else None
    except OSError:
        return None
    return None if found is None else (found.st_mtime_ns, found.st_size, found.st_ino)


def _enforcer(file: Path | None, tell: Callable[[PolicyProblem], None]) -> oslo.Enforcer:
    """Return oslo.policy's judge over Nova's rules and those of a file."""
    written = {} if file is None else files.read(file)
    conf = cfg.ConfigOpts()
    conf([], project="skep", default_config_files=[], default_config_dirs=[])
    policy_options.set_defaults(conf, policy_file=str(file or ""))
    conf.set_override("policy_dirs", [], group="oslo_policy")
    enforcer = oslo.Enforcer(conf, policy_file=str(file or ""), use_conf=file is not None)
    enforcer.suppress_deprecation_warnings = True
    for rule in RULES:
        former = FORMER.get(rule.name)
        enforcer.register_default(
            oslo.RuleDefault(
                rule.name,
                rule.check,
                description=rule.description,
                scope_types=None if rule.scopes is None else list(rule.scopes),
                deprecated_rule=None
                if former is None
                else oslo.DeprecatedRule(*former, deprecated_reason="it was split", deprecated_since="21.0.0"),
            )
        )
    if file is None:
        enforcer.set_rules(oslo.Rules.from_dict({rule.name: rule.check for rule in RULES}), use_conf=False)
        return enforcer
    try:
        enforcer.load_rules()
    except Exception as error:
        raise Misconfigured(f"policy file {file}: {error}") from error
    enforcer.use_conf = False  # else it would look at the file itself, at each question
    for problem in files.problems(written):
        tell(problem)
    return enforcer
