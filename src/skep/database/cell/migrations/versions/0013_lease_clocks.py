"""How long leases are, and by how much the clocks of their processes differ from the database's.

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
compatible_since = "0003"


def upgrade() -> None:
    """Add what the tables of this revision have more."""
    op.add_column("leases", sa.Column("length", sa.BigInteger()))
    op.add_column("leases", sa.Column("clock_ahead", sa.BigInteger()))


def downgrade() -> None:
    """Take it away again."""
    op.drop_column("leases", "clock_ahead")
    op.drop_column("leases", "length")
