"""Ports of live migrations that are bound to both hosts.

Revision ID: 0037
Revises: 0036
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from skep.database.partial_index import where

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None
compatible_since = "0003"


def upgrade() -> None:
    """Expand the schema."""
    op.add_column("migrations", sa.Column("dest_binding", sa.Text()))
    op.create_index("migrations_bound", "migrations", ["dest_binding"], **where("dest_binding IS NOT NULL"))


def downgrade() -> None:
    """Go back one revision."""
    op.drop_index("migrations_bound", table_name="migrations")
    op.drop_column("migrations", "dest_binding")
