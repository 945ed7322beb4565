"""${message}"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None
compatible_since = ${repr(up_revision)}


def upgrade() -> None:
    """Expand the schema."""
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    """Go back one revision."""
    ${downgrades if downgrades else "pass"}
