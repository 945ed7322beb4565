"""Domains and groups of the embedded identity service, and roles that are given to groups, in domains, or inherited.

Revision ID: 0020
Revises: 0019
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None
compatible_since = "0001"


def upgrade() -> None:
    """Add the tables and columns, and the domain that every cloud has."""
    op.create_table(
        "domains",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
    )
    first = (
        "INSERT INTO domains (id, name, description, enabled, created_at) VALUES ('default', 'Default', '{}', {}, 0)"
    )
    op.execute(first.format("The default domain", "true"))
    for table in ("users", "projects"):
        op.add_column(table, sa.Column("domain_id", sa.Text(), server_default="default", nullable=False))
        op.create_index(f"ix_{table}_domain_id", table, ["domain_id"])
    op.add_column("roles", sa.Column("description", sa.Text(), server_default=sa.text("''"), nullable=False))
    op.create_table(
        "groups",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("domain_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
    )
    op.create_index("ix_groups_domain_id", "groups", ["domain_id"])
    op.create_table(
        "group_members",
        sa.Column("group_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["group_id"], ["groups.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("group_id", "user_id"),
    )
    op.create_index("ix_group_members_user_id", "group_members", ["user_id"])
    op.create_table(
        "wider_role_assignments",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text()),
        sa.Column("group_id", sa.Text()),
        sa.Column("project_id", sa.Text()),
        sa.Column("domain_id", sa.Text()),
        sa.Column("role_id", sa.Text(), nullable=False),
        sa.Column("inherited", sa.Boolean(), nullable=False),
        *(
            sa.ForeignKeyConstraint([f"{noun}_id"], [f"{noun}s.id"], ondelete="CASCADE")
            for noun in ("user", "group", "project", "domain", "role")
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    for noun in ("user", "group", "project", "domain"):
        op.create_index(f"ix_wider_role_assignments_{noun}_id", "wider_role_assignments", [f"{noun}_id"])


def downgrade() -> None:
    """Take them away again."""
    op.drop_table("wider_role_assignments")
    op.drop_table("group_members")
    op.drop_table("groups")
    op.drop_column("roles", "description")
    for table in ("projects", "users"):
        op.drop_index(f"ix_{table}_domain_id", table)
        op.drop_column(table, "domain_id")
    op.drop_table("domains")
