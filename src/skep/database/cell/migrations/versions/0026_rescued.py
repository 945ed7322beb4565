"""Rows of rescued servers need no work.

Revision ID: 0026
Revises: 0025
"""

from __future__ import annotations

from alembic import op

from skep.database.partial_index import where

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None
compatible_since = "0003"


def upgrade() -> None:
    """Expand the schema."""
    _index("'active','stopped','paused','suspended','rescued','soft_deleted','resized','error','deleted','moved'")


def downgrade() -> None:
    """Go back one revision."""
    _index("'active','stopped','paused','suspended','soft_deleted','resized','error','deleted','moved'")


def _index(settled: str) -> None:
    op.drop_index("instances_work", table_name="instances")
    op.create_index("instances_work", "instances", ["state", "step_at"], **where(f"state NOT IN ({settled})"))
