"""Tables of the embedded identity service. Times are microseconds since the epoch; no token is ever stored."""

from __future__ import annotations

import sqlalchemy as sa

from skep.database.api.metadata import metadata

domains = sa.Table(
    "domains",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("description", sa.Text, nullable=False),
    sa.Column("enabled", sa.Boolean, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
)

projects = sa.Table(
    "projects",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("description", sa.Text, nullable=False, default=""),
    sa.Column("enabled", sa.Boolean, nullable=False, default=True),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("domain_id", sa.Text, nullable=False, server_default="default", index=True),
)
"""`name` is a name in its domain, as `names_in_domains.stored` writes it; in `users` and `groups` likewise."""

users = sa.Table(
    "users",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("email", sa.Text),
    sa.Column("description", sa.Text, nullable=False, default=""),
    sa.Column("enabled", sa.Boolean, nullable=False, default=True),
    sa.Column("default_project_id", sa.Text),
    sa.Column("password_hash", sa.Text),
    sa.Column("tokens_invalid_before", sa.BigInteger, nullable=False, default=0),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("domain_id", sa.Text, nullable=False, server_default="default", index=True),
    sa.Column("password_expires_at", sa.BigInteger),
)
"""`tokens_invalid_before` rises when a password changes or a user is disabled: older tokens end there."""

former_passwords = sa.Table(
    "former_passwords",
    metadata,
    sa.Column("user_id", sa.ForeignKey("users.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("ended_at", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("password_hash", sa.Text, nullable=False),
)

groups = sa.Table(
    "groups",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("description", sa.Text, nullable=False),
    sa.Column("domain_id", sa.Text, nullable=False, index=True),
    sa.Column("created_at", sa.BigInteger, nullable=False),
)

group_members = sa.Table(
    "group_members",
    metadata,
    sa.Column("group_id", sa.ForeignKey("groups.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("user_id", sa.ForeignKey("users.id", ondelete="CASCADE"), primary_key=True, index=True),
)

roles = sa.Table(
    "roles",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("description", sa.Text, nullable=False, server_default=sa.text("''")),
)

role_assignments = sa.Table(
    "role_assignments",
    metadata,
    sa.Column("user_id", sa.ForeignKey("users.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("project_id", sa.ForeignKey("projects.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("role_id", sa.ForeignKey("roles.id", ondelete="CASCADE"), primary_key=True),
    sa.Index("role_assignments_project", "project_id"),
)

system_role_assignments = sa.Table(
    "system_role_assignments",
    metadata,
    sa.Column("user_id", sa.ForeignKey("users.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("role_id", sa.ForeignKey("roles.id", ondelete="CASCADE"), primary_key=True),
)

wider_role_assignments = sa.Table(
    "wider_role_assignments",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("user_id", sa.ForeignKey("users.id", ondelete="CASCADE"), index=True),
    sa.Column("group_id", sa.ForeignKey("groups.id", ondelete="CASCADE"), index=True),
    sa.Column("project_id", sa.ForeignKey("projects.id", ondelete="CASCADE"), index=True),
    sa.Column("domain_id", sa.ForeignKey("domains.id", ondelete="CASCADE"), index=True),
    sa.Column("role_id", sa.ForeignKey("roles.id", ondelete="CASCADE"), nullable=False),
    sa.Column("inherited", sa.Boolean, nullable=False),
)
"""What is given to groups, in domains, or inherited: all that the two tables before it cannot hold. A user or a group;
a project, a domain, or neither: the system. `id` is made of the others, so that nothing is given twice."""

application_credentials = sa.Table(
    "application_credentials",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("user_id", sa.ForeignKey("users.id", ondelete="CASCADE"), nullable=False),
    sa.Column("project_id", sa.ForeignKey("projects.id", ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("description", sa.Text, nullable=False),
    sa.Column("secret_hash", sa.Text, nullable=False),
    sa.Column("expires_at", sa.BigInteger),
    sa.Column("unrestricted", sa.Boolean, nullable=False),
    sa.Column("has_rules", sa.Boolean, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.UniqueConstraint("user_id", "name"),
)
"""`has_rules`: good for nothing but what its access rules allow."""

application_credential_roles = sa.Table(
    "application_credential_roles",
    metadata,
    sa.Column("credential_id", sa.ForeignKey("application_credentials.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("role_id", sa.ForeignKey("roles.id", ondelete="CASCADE"), primary_key=True),
)

access_rules = sa.Table(
    "access_rules",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("user_id", sa.ForeignKey("users.id", ondelete="CASCADE"), nullable=False),
    sa.Column("service", sa.Text, nullable=False),
    sa.Column("method", sa.Text, nullable=False),
    sa.Column("path", sa.Text, nullable=False),
    sa.UniqueConstraint("user_id", "service", "method", "path"),
)

application_credential_rules = sa.Table(
    "application_credential_rules",
    metadata,
    sa.Column("credential_id", sa.ForeignKey("application_credentials.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("rule_id", sa.ForeignKey("access_rules.id", ondelete="CASCADE"), primary_key=True, index=True),
)

revoked_tokens = sa.Table(
    "revoked_tokens",
    metadata,
    sa.Column("audit_id", sa.Text, primary_key=True),
    sa.Column("expires_at", sa.BigInteger, nullable=False, index=True),
)
"""Audit ids of tokens that were taken back; a row may go once its token has expired by itself."""
