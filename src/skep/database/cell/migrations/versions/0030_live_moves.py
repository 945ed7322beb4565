"""How far live migrations are, and what is wished of them.

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
compatible_since = "0003"

_FIGURES = tuple(f"{kind}_{part}" for kind in ("memory", "disk") for part in ("total", "processed", "remaining"))


def upgrade() -> None:
    """Expand the schema."""
    op.add_column("migrations", sa.Column("forced", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.add_column("migrations", sa.Column("wish", sa.Text()))
    for name in _FIGURES:
        op.add_column("migrations", sa.Column(name, sa.BigInteger()))


def downgrade() -> None:
    """Go back one revision."""
    for name in (*reversed(_FIGURES), "wish", "forced"):
        op.drop_column("migrations", name)
