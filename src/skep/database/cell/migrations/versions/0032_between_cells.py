"""Cold moves between cells: their rows in both, servers that are away, and what conductors can go on with.

Revision ID: 0032
Revises: 0031
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from skep.database.partial_index import where

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None
compatible_since = "0003"

_SETTLED = "'active','stopped','paused','suspended','rescued','soft_deleted','shelved','shelved_offloaded','resized'"


def upgrade() -> None:
    """Expand the schema."""
    op.add_column("migrations", sa.Column("elsewhere", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.add_column("migrations", sa.Column("source_cell", sa.Text()))
    op.add_column("migrations", sa.Column("dest_cell", sa.Text()))
    op.add_column("migrations", sa.Column("turn", sa.Integer(), server_default="0", nullable=False))
    op.add_column("leases", sa.Column("understands", sa.Text()))
    op.create_index("instances_away", "instances", ["state", "uuid"], **where("state = 'away'"))
    _index(f"{_SETTLED},'away','error','deleted','moved'")


def downgrade() -> None:
    """Go back one revision."""
    _index(f"{_SETTLED},'error','deleted','moved'")
    op.drop_index("instances_away", table_name="instances")
    op.drop_column("leases", "understands")
    for name in ("turn", "dest_cell", "source_cell", "elsewhere"):
        op.drop_column("migrations", name)


def _index(settled: str) -> None:
    op.drop_index("instances_work", table_name="instances")
    op.create_index("instances_work", "instances", ["state", "step_at"], **where(f"state NOT IN ({settled})"))
