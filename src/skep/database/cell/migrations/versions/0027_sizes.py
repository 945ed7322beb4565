"""What a resize changes of a server, before and after.

Revision ID: 0027
Revises: 0026
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None
compatible_since = "0003"

_SIZES = ("old_size", "new_size")


def upgrade() -> None:
    """Expand the schema."""
    for name in _SIZES:
        op.add_column("migrations", sa.Column(name, sa.LargeBinary()))


def downgrade() -> None:
    """Go back one revision."""
    for name in reversed(_SIZES):
        op.drop_column("migrations", name)
