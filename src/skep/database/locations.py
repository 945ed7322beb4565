"""Where a database is: a SQLite file, or the SQLAlchemy URL of a PostgreSQL database."""

from __future__ import annotations

from pathlib import Path

import msgspec
import sqlalchemy as sa
from sqlalchemy import exc

from skep.config.urls import masked
from skep.domain.errors import Misconfigured

Location = Path | str
"""A SQLite file, or the SQLAlchemy URL of a PostgreSQL database."""

DRIVER = "postgresql+psycopg"
PORT = 5432
"""Of a URL that names none."""


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """What the URL of a PostgreSQL database says."""

    host: str | None
    port: int | None
    database: str | None
    password: str | None
    """In the URL itself."""
    passfile: str | None
    """The file that has the password."""


def location_of(url: str, default: Path) -> Location:
    """Return what a URL names, or the default for an empty one.

    Raises Misconfigured for a URL of another kind of database.
    """
    if not url:
        return default
    try:
        parsed = sa.make_url(url)
    except exc.ArgumentError:
        raise Misconfigured(
            f"{masked(url)} is no SQLAlchemy URL, such as postgresql://USER@HOST/NAME or sqlite:///FILE"
        ) from None
    backend = parsed.get_backend_name()
    if backend == "sqlite" and parsed.database:
        return Path(parsed.database)
    if backend == "postgresql" and parsed.database:
        return parsed.set(drivername=DRIVER).render_as_string(hide_password=False)
    raise Misconfigured(f"database URL {masked(url)}: databases are SQLite files or named databases of PostgreSQL")


def shown(location: Location) -> str:
    """Return a location as it may be printed."""
    return masked(str(location))


def is_same(one: Location, other: Location) -> bool:
    """Tell whether two locations are those of one database, whoever signs in to it."""
    return _place(one) == _place(other)


def _place(location: Location) -> tuple[object, ...]:
    """Return by what a database is told from others: its file, or its server and name."""
    if isinstance(location, Path):
        return (location.resolve(),)
    url = sa.make_url(location)
    host = url.host or url.query.get("host") or ""
    return (host, str(url.port or url.query.get("port") or PORT), url.database)


def address_of(url: str) -> Address:
    """Return what the URL of a PostgreSQL database says."""
    parsed = sa.make_url(url)
    passfile = parsed.query.get("passfile")
    return Address(
        host=parsed.host,
        port=parsed.port,
        database=parsed.database,
        password=parsed.password,
        passfile=passfile if isinstance(passfile, str) else None,
    )


def postgresql_url(role: str, host: str, port: int, database: str, passfile: Path) -> str:
    """Return the URL of a PostgreSQL database for a role whose password stands in a file."""
    query = {"passfile": str(passfile)}
    return sa.URL.create(DRIVER, username=role, host=host, port=port, database=database, query=query).render_as_string()


def for_programs(url: str) -> tuple[str, str | None]:
    """Return a PostgreSQL database's URL as libpq's programs take it, without its password; and that password."""
    parsed = sa.make_url(url)
    secret = parsed.password or parsed.query.get("password")
    plain = parsed.set(drivername="postgresql", password=None).difference_update_query(["password"])
    return plain.render_as_string(hide_password=False), secret if isinstance(secret, str) else None
