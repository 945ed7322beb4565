"""Servers whose content is in an image: shelved ones need no work until their time on their host is over.

Revision ID: 0028
Revises: 0027
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from skep.database.partial_index import where

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None
compatible_since = "0003"

_SETTLED = "'active','stopped','paused','suspended','rescued','soft_deleted'"


def upgrade() -> None:
    """Expand the schema."""
    op.add_column("instances", sa.Column("shelved", sa.LargeBinary()))
    op.create_index("instances_shelved", "instances", ["step_at"], **where("state = 'shelved'"))
    _index(f"{_SETTLED},'shelved','shelved_offloaded','resized','error','deleted','moved'")


def downgrade() -> None:
    """Go back one revision."""
    _index(f"{_SETTLED},'resized','error','deleted','moved'")
    op.drop_index("instances_shelved", table_name="instances")
    op.drop_column("instances", "shelved")


def _index(settled: str) -> None:
    op.drop_index("instances_work", table_name="instances")
    op.create_index("instances_work", "instances", ["state", "step_at"], **where(f"state NOT IN ({settled})"))
