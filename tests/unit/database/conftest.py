"""Databases with the real schemas, and rows to try the writes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from skep.database.api.schema import metadata as api_metadata
from skep.database.cell.schema import metadata as cell_metadata


def _opened(path: Path, metadata: sa.MetaData) -> Iterator[sa.Connection]:
    engine = sa.create_engine(f"sqlite:///{path}")
    metadata.create_all(engine)
    with engine.connect() as connection:
        yield connection
    engine.dispose()


@pytest.fixture
def cell(tmp_path: Path) -> Iterator[sa.Connection]:
    """A connection to an empty cell."""
    yield from _opened(tmp_path / "cell.db", cell_metadata)


@pytest.fixture
def api(tmp_path: Path) -> Iterator[sa.Connection]:
    """A connection to an empty API database."""
    yield from _opened(tmp_path / "api.db", api_metadata)
