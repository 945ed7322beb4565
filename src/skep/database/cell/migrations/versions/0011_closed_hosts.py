"""Hosts of a cell that are being deleted.

Revision ID: 0011
Revises: 0010
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from skep.database.partial_index import where

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None
compatible_since = "0003"


def upgrade() -> None:
    """Add what the tables of this revision have more."""
    op.add_column("agents", sa.Column("deleting_at", sa.BigInteger(), nullable=True))
    op.create_index("agents_deleting", "agents", ["deleting_at"], **where("deleting_at IS NOT NULL"))


def downgrade() -> None:
    """Take it away again."""
    op.drop_index("agents_deleting", "agents")
    op.drop_column("agents", "deleting_at")
