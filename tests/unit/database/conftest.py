"""Databases with the real tables, and rows to try the writes on. Each test's changes are rolled back at its end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from skep.database.api.schema import metadata as api_metadata
from skep.database.cell.schema import metadata as cell_metadata


def _opened(metadata: sa.MetaData) -> Iterator[sa.Connection]:
    engine = sa.create_engine("sqlite://")
    metadata.create_all(engine)
    with engine.connect() as connection:
        yield connection
    engine.dispose()


@pytest.fixture(scope="session")
def _cell() -> Iterator[sa.Connection]:
    yield from _opened(cell_metadata)


@pytest.fixture(scope="session")
def _api() -> Iterator[sa.Connection]:
    yield from _opened(api_metadata)


@pytest.fixture
def cell(_cell: sa.Connection) -> Iterator[sa.Connection]:
    """A connection to an empty cell."""
    yield _cell
    _cell.rollback()


@pytest.fixture
def api(_api: sa.Connection) -> Iterator[sa.Connection]:
    """A connection to an empty API database."""
    yield _api
    _api.rollback()
