"""How long leases are, and by how much the clocks of their processes differ from the database's.

Revision ID: 0009
Revises: 0008
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None
compatible_since = "0001"


def upgrade() -> None:
    """Add what the tables of this revision have more."""
    op.add_column("leases", sa.Column("length", sa.BigInteger()))
    op.add_column("leases", sa.Column("clock_ahead", sa.BigInteger()))


def downgrade() -> None:
    """Take it away again."""
    op.drop_column("leases", "clock_ahead")
    op.drop_column("leases", "length")
