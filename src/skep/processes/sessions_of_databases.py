"""Who is signed in to the PostgreSQL databases of an installation. Blocks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from skep.database.locations import Location, shown
from skep.database.opening import bare_engine

QUERY = sa.text(
    """
    SELECT usename, coalesce(host(client_addr), '-') AS address, count(*) AS sessions
    FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND usename IS NOT NULL
    GROUP BY usename, address ORDER BY usename, address
    """
)


def sessions(locations: Mapping[str, Location]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the sessions by database, role and address; and which databases cannot be asked, and why.

    A role that signs in and acts as another is named by what it signed in as. SQLite files are left out.
    """
    found: list[dict[str, Any]] = []
    away: list[str] = []
    for name, location in locations.items():
        if isinstance(location, Path) or not location.startswith("postgresql"):
            continue
        engine = bare_engine(location)
        try:
            with engine.connect() as connection:
                rows = connection.execute(QUERY).all()
        except sa.exc.SQLAlchemyError as error:
            away.append(f"{name}, {shown(location)}: {str(error.__cause__ or error).splitlines()[0]}")
            continue
        finally:
            engine.dispose()
        found += [
            {"database": name, "role": row.usename, "sessions": row.sessions, "address": row.address} for row in rows
        ]
    return found, away
