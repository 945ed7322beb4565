"""Rows of soft-deleted servers need no work until their time is over: an index of their own finds them.

Revision ID: 0024
Revises: 0023
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from skep.database.partial_index import where

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None
compatible_since = "0003"


def upgrade() -> None:
    """Expand the schema."""
    op.add_column("instances", sa.Column("refused_id", sa.Text()))
    _index("'active','stopped','paused','suspended','soft_deleted','error','deleted','moved'")
    op.create_index("instances_soft_deleted", "instances", ["step_at"], **where("state = 'soft_deleted'"))


def downgrade() -> None:
    """Go back one revision."""
    op.drop_index("instances_soft_deleted", table_name="instances")
    op.drop_column("instances", "refused_id")
    _index("'active','stopped','paused','suspended','error','deleted','moved'")


def _index(settled: str) -> None:
    op.drop_index("instances_work", table_name="instances")
    op.create_index("instances_work", "instances", ["state", "step_at"], **where(f"state NOT IN ({settled})"))
