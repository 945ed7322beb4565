"""Cells and hosts that are being deleted.

Revision ID: 0008
Revises: 0007
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None
compatible_since = "0001"


def upgrade() -> None:
    """Add what the tables of this revision have more."""
    op.add_column("cells", sa.Column("deleting_at", sa.BigInteger(), nullable=True))
    op.add_column("host_mappings", sa.Column("deleting_at", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    """Take it away again."""
    op.drop_column("host_mappings", "deleting_at")
    op.drop_column("cells", "deleting_at")
