"""Who locked a server: its owner, or another.

Revision ID: 0021
Revises: 0020
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None
compatible_since = "0003"


def upgrade() -> None:
    """Expand the schema."""
    op.add_column("instances", sa.Column("locked_by", sa.Text()))


def downgrade() -> None:
    """Go back one revision."""
    op.drop_column("instances", "locked_by")
