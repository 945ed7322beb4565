"""Tables of the embedded identity service. Times are microseconds since the epoch; no token is ever stored."""

from __future__ import annotations

import sqlalchemy as sa

from skep.database.api.metadata import metadata

projects = sa.Table(
    "projects",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("description", sa.Text, nullable=False, default=""),
    sa.Column("enabled", sa.Boolean, nullable=False, default=True),
    sa.Column("created_at", sa.BigInteger, nullable=False),
)

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
)
"""`tokens_invalid_before` rises when a password changes or a user is disabled: older tokens end there."""

roles = sa.Table(
    "roles",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
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

revoked_tokens = sa.Table(
    "revoked_tokens",
    metadata,
    sa.Column("audit_id", sa.Text, primary_key=True),
    sa.Column("expires_at", sa.BigInteger, nullable=False, index=True),
)
"""Audit ids of tokens that were taken back; a row may go once its token has expired by itself."""
