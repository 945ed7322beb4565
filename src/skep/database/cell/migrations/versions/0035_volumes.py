"""Volumes of servers, and the host that they are connected to.

Revision ID: 0035
Revises: 0034
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from skep.database.partial_index import where

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None
compatible_since = "0003"


def upgrade() -> None:
    """Expand the schema."""
    op.add_column("instances", sa.Column("volumes", sa.LargeBinary()))
    op.add_column("instances", sa.Column("volumes_at", sa.Text()))
    misplaced = "volumes_at <> coalesce(host, '') AND deleted_at IS NULL"
    op.create_index("instances_misplaced", "instances", ["uuid"], **where(misplaced))


def downgrade() -> None:
    """Go back one revision."""
    op.drop_index("instances_misplaced", table_name="instances")
    op.drop_column("instances", "volumes_at")
    op.drop_column("instances", "volumes")
