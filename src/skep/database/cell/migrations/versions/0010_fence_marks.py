"""Since when a host is marked as fenced, and when that takes effect.

Revision ID: 0010
Revises: 0009
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from skep.database.partial_index import where

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None
compatible_since = "0003"


def upgrade() -> None:
    """Add what the tables of this revision have more."""
    op.add_column("agents", sa.Column("fence_marked_at", sa.BigInteger()))
    op.add_column("agents", sa.Column("fence_due_at", sa.BigInteger()))
    op.create_index("agents_fence_marked", "agents", ["fence_marked_at"], **where("fence_marked_at IS NOT NULL"))


def downgrade() -> None:
    """Take it away again."""
    op.drop_index("agents_fence_marked", "agents")
    op.drop_column("agents", "fence_due_at")
    op.drop_column("agents", "fence_marked_at")
