"""Which cells an instance was in before; `moved` rows are not under way."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from skep.database.partial_index import where

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None
compatible_since = "0001"

_SETTLED = "'active','stopped','error','deleted'"


def upgrade() -> None:
    """Expand the schema."""
    op.add_column("instances", sa.Column("left_cells", sa.Text(), server_default="[]", nullable=False))
    _index(f"state NOT IN ({_SETTLED},'moved')")


def downgrade() -> None:
    """Go back one revision."""
    _index(f"state NOT IN ({_SETTLED})")
    op.drop_column("instances", "left_cells")


def _index(condition: str) -> None:
    op.drop_index("instances_work", table_name="instances")
    op.create_index("instances_work", "instances", ["state", "step_at"], **where(condition))
