"""The time of the database, and what becomes of one that went back in it.

Revision ID: 0013
Revises: 0012
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None
compatible_since = "0001"


def upgrade() -> None:
    """Add what the tables of this revision have more."""
    op.create_table(
        "timeline",
        sa.Column("only", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("timeline", sa.BigInteger(), nullable=False),
        sa.Column("tick", sa.BigInteger(), nullable=False),
        sa.Column("recovering_since", sa.BigInteger(), nullable=True),
        sa.Column("reason", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("compared_at", sa.BigInteger(), nullable=True),
        sa.Column("looked_at", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("judged_at", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("only"),
    )
    op.create_table(
        "timeline_runs",
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("tick", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("owner"),
    )
    op.create_table(
        "databases_seen",
        sa.Column("database", sa.Text(), nullable=False),
        sa.Column("timeline", sa.BigInteger(), nullable=False),
        sa.Column("tick", sa.BigInteger(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("database"),
    )
    op.create_table(
        "recovering_servers",
        sa.Column("instance", sa.Text(), nullable=False),
        sa.Column("doubt", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("instance"),
    )


def downgrade() -> None:
    """Take it away again."""
    for table in ("recovering_servers", "databases_seen", "timeline_runs", "timeline"):
        op.drop_table(table)
