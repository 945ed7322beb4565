"""How a database is opened: looked at, made or upgraded where that may be."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import exc

from skep.database import passfile, schema
from skep.database.engine import Database
from skep.database.locations import Location, shown
from skep.database.suitability import refuse_unsuitable
from skep.database.writer import cause
from skep.domain.errors import Misconfigured, SkepError, StorageUnavailable


async def open_database(name: str, location: Location, *, upgrade: bool) -> Database:
    """Open a database; `upgrade` makes its tables, or brings them up. Without it what is missing or old is refused.

    Raises Misconfigured when it cannot be used, StorageUnavailable when it cannot be reached now.
    """
    if not upgrade and isinstance(location, Path) and not location.is_file():
        raise Misconfigured(f"the database of {name}, {location}, is missing: `skep db upgrade` makes new ones")
    database = Database(location, short_reads=True)
    try:
        await asyncio.to_thread(prepare, database, name, upgrade=upgrade)
    except BaseException:
        await database.close()
        raise
    return database


def prepare(database: Database, name: str, *, upgrade: bool) -> None:
    """See that a database can be used; `name` is `api` or that of its cell. Blocks. Raises as `open_database` does."""
    kind: schema.Kind = "api" if name == "api" else "cell"
    try:
        refuse_unsuitable(database.engine, database.engine.url.database or name)
        if upgrade:
            schema.upgrade(database.engine, kind)
        else:
            schema.check(database.engine, kind, name)
    except SkepError:
        raise
    except Exception as error:
        raise _explained(database.location, error) from error


def revision_of(location: Location) -> str | None:
    """Return the revision of a database's schema; None when it is not there or empty. It is not made. Blocks.

    Raises Misconfigured when it is no database, StorageUnavailable when it cannot be reached now.
    """
    if isinstance(location, Path) and not location.is_file():
        return None
    engine = bare_engine(location)
    try:
        return schema.current(engine)
    except exc.SQLAlchemyError as error:
        if is_absent(location):
            return None
        raise _explained(location, error) from error
    finally:
        engine.dispose()


def bare_engine(location: Location) -> sa.Engine:
    """Return an engine for a look at a database that may be of another release, or none at all."""
    url = f"sqlite:///{location}" if isinstance(location, Path) else location
    options = {} if isinstance(location, Path) else {"connect_timeout": 3, "client_encoding": "utf8"}
    return passfile.follow(sa.create_engine(url, poolclass=sa.NullPool, connect_args=options))


@contextmanager
def looking_at(location: Location) -> Iterator[sa.Connection]:
    """A transaction in a database that may be of another release, or none at all. Blocks.

    Raises StorageUnavailable with what the driver says; which database it is stands in the text of the caller.
    """
    engine = bare_engine(location)
    try:
        with engine.begin() as connection:
            yield connection
    except exc.SQLAlchemyError as error:
        raise StorageUnavailable(cause(error)) from error
    finally:
        engine.dispose()


def is_absent(location: Location) -> bool:
    """Tell whether there is surely no such database. Blocks."""
    if isinstance(location, Path):
        return not location.is_file()
    url = sa.make_url(location)
    # PostgreSQL says in words only why it refuses a connection, and in the server's language.
    engine = bare_engine(url.set(database="postgres").render_as_string(hide_password=False))
    try:
        with engine.connect() as connection:
            known = sa.text("SELECT count(*) FROM pg_database WHERE datname = :name")
            return bool(connection.execute(known, {"name": url.database}).scalar_one() == 0)
    except exc.SQLAlchemyError:
        return False
    finally:
        engine.dispose()


def _explained(location: Location, error: Exception) -> SkepError:
    if not isinstance(location, Path):
        if is_absent(location):
            name = sa.make_url(location).database
            made = f"createdb --template=template0 --encoding=UTF8 --locale=C {name}"
            return Misconfigured(
                f"there is no PostgreSQL database {shown(location)}: make it (`{made}`) or restore it from a backup"
            )
        if isinstance(error, exc.OperationalError):
            return StorageUnavailable(f"database {shown(location)} cannot be reached: {cause(error)}")
    return Misconfigured(f"database {shown(location)} cannot be used: {cause(error)}")
