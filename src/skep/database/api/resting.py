"""Which servers without a cell rest while the API database recovers: conditions of statements on mappings."""

from __future__ import annotations

import sqlalchemy as sa

from skep.database.api.tables import instance_mappings
from skep.database.api.time_tables import recovering_servers
from skep.domain.recovery import ENDED

_held = recovering_servers.c
_mine = _held.instance == instance_mappings.c.instance

RESTS = sa.exists(sa.select(_held.instance).where(_mine))
"""Says of a server that a cell may have it, because this database went back in time: it is neither placed nor ended."""

_DELETED = sa.exists(sa.select(_held.instance).where(_mine, _held.doubt == ENDED.reason))
MAY_END = sa.or_(~RESTS, _DELETED)
"""Says of a server without a cell that a delete of it ends it at once: so it is also of one that was deleted in the
time that is lost."""
