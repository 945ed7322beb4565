"""Charges on which an action is at work.

Revision ID: 0017
Revises: 0016
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from skep.database.partial_index import where

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None
compatible_since = "0001"


def upgrade() -> None:
    """Add what the tables of this revision have more."""
    op.add_column("quota_charges", sa.Column("task_id", sa.Text()))
    op.add_column("quota_charges", sa.Column("task_at", sa.BigInteger()))
    op.create_index("quota_charges_task", "quota_charges", ["task_at"], **where("task_id IS NOT NULL"))


def downgrade() -> None:
    """Take it away again."""
    op.drop_index("quota_charges_task", table_name="quota_charges")
    op.drop_column("quota_charges", "task_at")
    op.drop_column("quota_charges", "task_id")
