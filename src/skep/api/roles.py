"""What rules of policy are made of: the roles that Nova's defaults name."""

from __future__ import annotations

from typing import NamedTuple

ADMIN = "rule:context_is_admin"
MANAGER_OR_ADMIN = "rule:project_manager_or_admin"
MEMBER_OR_ADMIN = "rule:project_member_or_admin"
READER_OR_ADMIN = "rule:project_reader_or_admin"
ANYBODY = "@"
USER_OR_ADMIN = "rule:context_is_admin or user_id:%(user_id)s"

ANY_TOKEN = "skep:any_token"  # noqa: S105 - the name of a rule
"""For what Nova serves without asking policy: flavors, server versions."""


class PolicyRule(NamedTuple):
    """One rule."""

    name: str
    check: str
    description: str = ""
