"""The password that a guest has told of itself.

Revision ID: 0031
Revises: 0030
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None
compatible_since = "0003"


def upgrade() -> None:
    """Expand the schema."""
    op.add_column("instances", sa.Column("guest_password", sa.Text()))


def downgrade() -> None:
    """Go back one revision."""
    op.drop_column("instances", "guest_password")
