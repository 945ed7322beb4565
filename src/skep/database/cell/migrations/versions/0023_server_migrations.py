"""Moves of servers to other hosts.

Revision ID: 0023
Revises: 0022
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None
compatible_since = "0003"


def upgrade() -> None:
    """Expand the schema."""
    op.create_table(
        "migrations",
        sa.Column("id", sa.Integer(), primary_key=True, autoincrement=True),
        sa.Column("uuid", sa.Text(), nullable=False, unique=True),
        sa.Column("instance", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("source_host", sa.Text()),
        sa.Column("dest_host", sa.Text()),
        sa.Column("dest_address", sa.Text()),
        sa.Column("old_flavor", sa.Text()),
        sa.Column("new_flavor", sa.Text()),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger()),
    )
    op.create_index("migrations_list", "migrations", ["created_at", "uuid"])
    op.create_index("migrations_instance", "migrations", ["instance"])


def downgrade() -> None:
    """Go back one revision."""
    op.drop_table("migrations")
