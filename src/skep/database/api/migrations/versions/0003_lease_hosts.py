"""Where the process of a lease runs.

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None
compatible_since = "0001"


def upgrade() -> None:
    """Add what the tables of this revision have more."""
    op.add_column("leases", sa.Column("host", sa.Text(), server_default=sa.text("''"), nullable=False))


def downgrade() -> None:
    """Take it away again."""
    op.drop_column("leases", "host")
