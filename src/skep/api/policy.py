"""Who may do what: oslo.policy with Nova's rule names, its answers remembered.

A check by oslo.policy costs some tens of microseconds. Nova's defaults look at nothing but roles, scope, and whether
caller and target are of one project and user, so an answer is good for every caller alike in these. A policy file may
also compare with particular ids; with one, the ids are part of what an answer is remembered by.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oslo_config import cfg
from oslo_policy import opts as policy_options
from oslo_policy import policy as oslo

from skep.api.policy_rules import RULES
from skep.domain.context import RequestContext
from skep.domain.errors import Forbidden, Misconfigured

MAX_REMEMBERED = 10_000
"""Answers kept; when there are more, all are forgotten."""


class Policy:
    """The rules in force: Nova's defaults, some of them replaced by an operator's file."""

    def __init__(self, policy_file: str | None = None) -> None:
        conf = cfg.ConfigOpts()
        conf([], project="skep", default_config_files=[], default_config_dirs=[])
        policy_options.set_defaults(conf, policy_file=policy_file or "")
        conf.set_override("policy_dirs", [], group="oslo_policy")
        self._enforcer = oslo.Enforcer(conf, policy_file=policy_file, use_conf=policy_file is not None)
        for rule in RULES:
            self._enforcer.register_default(
                oslo.RuleDefault(rule.name, rule.check, description=rule.description, scope_types=["project"])
            )
        self._by_ids = policy_file is not None
        self._remembered: dict[tuple[object, ...], bool] = {}
        if policy_file is None:
            self._enforcer.set_rules(oslo.Rules.from_dict({rule.name: rule.check for rule in RULES}), use_conf=False)
        else:
            self._load(policy_file)

    def _load(self, policy_file: str) -> None:
        if not Path(policy_file).is_file():
            raise Misconfigured(f"policy file {policy_file}: there is no such file")
        try:
            self._enforcer.load_rules()
        except Exception as error:
            raise Misconfigured(f"policy file {policy_file}: {error}") from error

    def allows(
        self, rule: str, context: RequestContext, *, project_id: str | None = None, user_id: str | None = None
    ) -> bool:
        """Tell whether the caller may act under `rule` on what belongs to that project and user (unsaid: the caller).

        Raises KeyError for a rule that does not exist: a bug of the caller.
        """
        project = context.project_id if project_id is None else project_id
        user = context.user_id if user_id is None else user_id
        key: tuple[object, ...]
        if self._by_ids:
            key = (
                rule,
                context.roles,
                context.system_scope,
                context.project_id,
                context.user_id,
                project,
                user,
            )
        else:
            same_user = user == context.user_id
            key = (rule, context.roles, context.system_scope, project == context.project_id, same_user)
        known = self._remembered.get(key)
        if known is None:
            known = self._ask(rule, context, project, user)
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

    def _ask(self, rule: str, context: RequestContext, project_id: str, user_id: str) -> bool:
        if rule not in self._enforcer.registered_rules:
            raise KeyError(rule)
        credentials: dict[str, Any] = {
            "roles": list(context.roles),
            "project_id": context.project_id,
            "tenant": context.project_id,
            "user_id": context.user_id,
            "is_admin": context.is_admin,
            "system_scope": "all" if context.system_scope else None,
            "domain_id": None,
        }
        target = {"project_id": project_id, "user_id": user_id}
        return bool(self._enforcer.enforce(rule, target, credentials))
