"""Who is signed in to the PostgreSQL databases of an installation. Blocks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from skep.database.locations import Location, shown
from skep.database.opening import looking_at
from skep.database.signed_in import signed_in
from skep.domain.errors import StorageUnavailable


def sessions(locations: Mapping[str, Location]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the sessions by database, role and address; and which databases cannot be asked, and why.

    A role that signs in and acts as another is named by what it signed in as. SQLite files are left out.
    """
    found: list[dict[str, Any]] = []
    away: list[str] = []
    for name, location in locations.items():
        if isinstance(location, Path) or not location.startswith("postgresql"):
            continue
        try:
            with looking_at(location) as connection:
                rows = signed_in(connection)
        except StorageUnavailable as error:
            away.append(f"{name}, {shown(location)}: {error}")
            continue
        found += [{"database": name, **msgspec.structs.asdict(row)} for row in rows]
    return found, away
