"""Second bindings of ports.

Revision ID: 0030
Revises: 0029
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None
compatible_since = "0001"


def upgrade() -> None:
    """Expand the schema."""
    op.add_column("ports", sa.Column("other_bindings", sa.LargeBinary()))


def downgrade() -> None:
    """Go back one revision."""
    op.drop_column("ports", "other_bindings")
