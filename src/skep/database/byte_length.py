"""How many bytes a text has, asked of the database, so that the text itself stays there."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import GenericFunction


class byte_length(GenericFunction[int]):  # noqa: N801 - named as SQL's functions are
    """The bytes of a text in UTF-8."""

    type = sa.Integer()
    inherit_cache = True


@compiles(byte_length)
def _octets(element: byte_length, compiler: SQLCompiler, **options: Any) -> str:
    return f"octet_length({compiler.process(element.clauses, **options)})"


@compiles(byte_length, "sqlite")
def _blob(element: byte_length, compiler: SQLCompiler, **options: Any) -> str:
    """SQLite knows `octet_length` since 3.43 only."""
    return f"length(CAST({compiler.process(element.clauses, **options)} AS BLOB))"
