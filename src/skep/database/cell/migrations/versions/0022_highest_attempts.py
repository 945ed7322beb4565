"""The highest number that was given to an attempt beside the one that holds the server.

Revision ID: 0022
Revises: 0021
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None
compatible_since = "0003"


def upgrade() -> None:
    """Expand the schema."""
    op.add_column("instances", sa.Column("highest", sa.Integer(), server_default="0", nullable=False))


def downgrade() -> None:
    """Go back one revision."""
    op.drop_column("instances", "highest")
