"""Where the process of a lease runs.

Revision ID: 0005
Revises: 0004
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None
compatible_since = "0003"


def upgrade() -> None:
    """Add what the tables of this revision have more."""
    op.add_column("leases", sa.Column("host", sa.Text(), server_default=sa.text("''"), nullable=False))


def downgrade() -> None:
    """Take it away again."""
    op.drop_column("leases", "host")
