"""Answers to creates that bore an idempotency key.

Revision ID: 0010
Revises: 0009
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None
compatible_since = "0001"


def upgrade() -> None:
    """Add what the tables of this revision have more."""
    op.create_table(
        "kept_answers",
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("asked", sa.LargeBinary(), nullable=False),
        sa.Column("answer", sa.LargeBinary(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "user_id", "key"),
    )
    op.create_index("kept_answers_expired", "kept_answers", ["expires_at"])


def downgrade() -> None:
    """Take it away again."""
    op.drop_index("kept_answers_expired", "kept_answers")
    op.drop_table("kept_answers")
