"""Where the database and the messaging of each cell are.

Revision ID: 0004
Revises: 0003
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None
compatible_since = "0001"


def upgrade() -> None:
    """Add what the tables of this revision have more."""
    for name in ("database_url", "transport_url"):
        op.add_column("cells", sa.Column(name, sa.Text(), server_default=sa.text("''"), nullable=False))
        op.add_column("cells", sa.Column(f"{name}_sealed", sa.LargeBinary()))


def downgrade() -> None:
    """Take it away again."""
    for name in ("transport_url", "database_url"):
        op.drop_column("cells", f"{name}_sealed")
        op.drop_column("cells", name)
