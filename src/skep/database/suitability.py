"""Whether a PostgreSQL database can hold what SQLite files hold, asked when it is opened.

Names are any text, so its encoding is UTF8. Pages of lists go on "after" a name or an id, and those of several cells
are merged outside of any database, so all must put text into one order: that of code points, which is SQLite's and
Python's too. A database with the order of a language would skip and repeat servers at the borders of pages.
"""

from __future__ import annotations

import sqlalchemy as sa

from skep.domain.errors import Misconfigured

OLDEST = 13
"""The first PostgreSQL that says of a transaction id what became of it (`pg_xact_status` of an `xid8`)."""

LETTERS = ("a", "B", "_", "-", "b", "A", "Z", "z", "1", "é", "ä")
"""Languages put these into other orders than code points do."""


def refuse_unsuitable(engine: sa.Engine, name: str) -> None:
    """Look at a database's release, encoding and order of text; SQLite's are as they must be.

    Raises Misconfigured saying how such a database is made.
    """
    if engine.dialect.name != "postgresql":
        return
    with engine.connect() as connection:
        asked = "SELECT current_setting('server_version_num')::int, current_setting('server_encoding')"
        version, encoding = connection.exec_driver_sql(asked).one()
        if version < OLDEST * 10_000:
            raise Misconfigured(f"database {name}: PostgreSQL {version // 10_000} is too old, {OLDEST} is needed")
        if encoding != "UTF8":
            raise Misconfigured(f"database {name} has the encoding {encoding}, {_wanted(name)}")
        sort = sa.text("SELECT letter FROM unnest(CAST(:letters AS text[])) AS letter ORDER BY letter")
        if tuple(connection.scalars(sort, {"letters": list(LETTERS)})) != tuple(sorted(LETTERS)):
            raise Misconfigured(f"database {name} sorts text by the rules of a language, {_wanted(name)}")


def _wanted(name: str) -> str:
    return (
        "but UTF8 in the order of code points is needed: make it with "
        f"`createdb --template=template0 --encoding=UTF8 --locale=C {name}`"
    )
