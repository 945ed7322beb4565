"""What rules of policy are made of: the roles that Nova's defaults name."""

from __future__ import annotations

from typing import NamedTuple

ADMIN = "rule:context_is_admin"
MANAGER_OR_ADMIN = "rule:project_manager_or_admin"
MEMBER_OR_ADMIN = "rule:project_member_or_admin"
SERVICE_OR_ADMIN = "rule:service_or_admin"
READER_OR_ADMIN = "rule:project_reader_or_admin"
SERVICE_OR_ADMIN = "rule:service_or_admin"
USER_OR_ADMIN = "(rule:context_is_admin) or user_id:%(user_id)s"
ANYBODY = "@"

ANY_TOKEN = "skep:any_token"  # noqa: S105 - the name of a rule
"""For what is served to every token of a project, and judged by somebody else, such as images."""

ANY_SCOPE = "skep:any_scope"
"""For what Nova serves without asking policy, to tokens of the system and of domains, too: flavors."""


class PolicyRule(NamedTuple):
    """One rule."""

    name: str
    check: str
    description: str = ""
    scopes: tuple[str, ...] | None = ("project",)
    """Of the tokens for which it may say yes. None: of whatever scope; so are those that other rules are made of."""
