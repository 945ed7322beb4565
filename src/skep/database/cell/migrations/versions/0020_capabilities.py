"""Agents say what their drivers can do, so that the API refuses an action that a host cannot carry out.

Revision ID: 0020
Revises: 0019
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None
compatible_since = "0003"


def upgrade() -> None:
    """Expand the schema."""
    op.add_column("agents", sa.Column("capabilities", sa.Text()))


def downgrade() -> None:
    """Go back one revision."""
    op.drop_column("agents", "capabilities")
