"""A password of PostgreSQL in a file of libpq's own form (`?passfile=FILE` in the URL), replaced while it is used.

libpq reads the file at each sign-in. PostgreSQL knows one password of a role, so between the moment in which the role
gets another and the one in which that stands in the file a sign-in is refused: it is tried again with the next content.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy as sa
from sqlalchemy import event

PATIENCE = 3.0
"""Seconds for the file to follow after the server refused a password."""
LOOK_SECONDS = 0.01


def follow(engine: sa.Engine) -> sa.Engine:
    """Have sign-ins of an engine that are refused tried again once the file with the password has changed."""

    @event.listens_for(engine, "do_connect")
    def _on_connect(dialect: Any, _record: Any, args: Any, parameters: dict[str, Any]) -> Any:
        named = parameters.get("passfile")
        return _signed_in(dialect, args, parameters, Path(named)) if named else None

    return engine


def _signed_in(dialect: Any, args: Any, parameters: dict[str, Any], file: Path) -> Any:
    while True:
        before = _version(file)
        try:
            return dialect.connect(*args, **parameters)
        except psycopg.OperationalError as error:
            if not _is_refused(error) or not _changes(file, before):
                raise


def _is_refused(error: psycopg.OperationalError) -> bool:
    """Tell whether the server was there and asked for a password; libpq says in words only what it answered."""
    return error.pgconn is not None and (error.pgconn.used_password or error.pgconn.needs_password)


def _changes(file: Path, before: tuple[int, int] | None) -> bool:
    end = time.monotonic() + PATIENCE
    while _version(file) == before:
        if time.monotonic() > end:
            return False
        time.sleep(LOOK_SECONDS)
    return True


def _version(file: Path) -> tuple[int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino
