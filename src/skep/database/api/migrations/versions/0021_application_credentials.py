"""Application credentials of the embedded identity service, and the access rules of users.

Revision ID: 0021
Revises: 0020
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None
compatible_since = "0001"


def upgrade() -> None:
    """Add the tables."""
    op.create_table(
        "application_credentials",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("secret_hash", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.BigInteger()),
        sa.Column("unrestricted", sa.Boolean(), nullable=False),
        sa.Column("has_rules", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("user_id", "name"),
    )
    op.create_index("ix_application_credentials_project_id", "application_credentials", ["project_id"])
    op.create_table(
        "application_credential_roles",
        sa.Column("credential_id", sa.Text(), nullable=False),
        sa.Column("role_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["credential_id"], ["application_credentials.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["role_id"], ["roles.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("credential_id", "role_id"),
    )
    op.create_table(
        "access_rules",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("service", sa.Text(), nullable=False),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("user_id", "service", "method", "path"),
    )
    op.create_table(
        "application_credential_rules",
        sa.Column("credential_id", sa.Text(), nullable=False),
        sa.Column("rule_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["credential_id"], ["application_credentials.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["rule_id"], ["access_rules.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("credential_id", "rule_id"),
    )
    op.create_index("ix_application_credential_rules_rule_id", "application_credential_rules", ["rule_id"])


def downgrade() -> None:
    """Take them away again."""
    for table in (
        "application_credential_rules",
        "access_rules",
        "application_credential_roles",
        "application_credentials",
    ):
        op.drop_table(table)
