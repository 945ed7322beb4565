"""All tables of a cell's database, for its migrations."""

from __future__ import annotations

from skep.database.cell.tables import metadata

__all__ = ["metadata"]
