"""How far cold moves are, what attempts beside the holder hold, and servers that were moved need no work.

Revision ID: 0025
Revises: 0024
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from skep.database.partial_index import where

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None
compatible_since = "0003"

_TEXTS = ("step", "owner", "task_id", "was", "error", "wanted_host", "source_node", "source_zone", "dest_node")
_NUMBERS = ("source_attempt", "dest_attempt", "back_attempt")


def upgrade() -> None:
    """Expand the schema."""
    for name in (*_TEXTS, "dest_zone"):
        op.add_column("migrations", sa.Column(name, sa.Text()))
    for name in _NUMBERS:
        op.add_column("migrations", sa.Column(name, sa.Integer()))
    for name in ("step_at", "sent_at"):
        op.add_column("migrations", sa.Column(name, sa.BigInteger()))
    op.add_column("migrations", sa.Column("granted", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.add_column("migrations", sa.Column("tried", sa.Text(), server_default="[]", nullable=False))
    op.create_index("migrations_unfinished", "migrations", ["step"], **where("step IS NOT NULL"))
    op.create_index("migrations_resting", "migrations", ["status"], **where("status = 'finished'"))
    op.add_column("attempts", sa.Column("resources", sa.LargeBinary()))
    op.add_column("attempts", sa.Column("allocation", sa.LargeBinary()))
    _index("'active','stopped','paused','suspended','soft_deleted','resized','error','deleted','moved'")


def downgrade() -> None:
    """Go back one revision."""
    _index("'active','stopped','paused','suspended','soft_deleted','error','deleted','moved'")
    op.drop_column("attempts", "allocation")
    op.drop_column("attempts", "resources")
    op.drop_index("migrations_resting", table_name="migrations")
    op.drop_index("migrations_unfinished", table_name="migrations")
    for name in ("tried", "granted", "sent_at", "step_at", *_NUMBERS, "dest_zone", *_TEXTS):
        op.drop_column("migrations", name)


def _index(settled: str) -> None:
    op.drop_index("instances_work", table_name="instances")
    op.create_index("instances_work", "instances", ["state", "step_at"], **where(f"state NOT IN ({settled})"))
