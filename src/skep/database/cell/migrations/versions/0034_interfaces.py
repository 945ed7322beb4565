"""Interfaces of servers, and the host that their ports are bound to.

Revision ID: 0034
Revises: 0033
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from skep.database.partial_index import where

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None
compatible_since = "0003"


def upgrade() -> None:
    """Expand the schema."""
    op.add_column("instances", sa.Column("vifs", sa.LargeBinary()))
    op.add_column("instances", sa.Column("bound_to", sa.Text()))
    misbound = "bound_to <> coalesce(host, '') AND deleted_at IS NULL"
    op.create_index("instances_misbound", "instances", ["uuid"], **where(misbound))


def downgrade() -> None:
    """Go back one revision."""
    op.drop_index("instances_misbound", table_name="instances")
    op.drop_column("instances", "bound_to")
    op.drop_column("instances", "vifs")
