"""Ids of images stay used, whichever release made the image or removed it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from skep.database import schema
from skep.database.api import images
from skep.database.api.image_tables import images as table
from skep.database.api.images import StoredImage
from skep.domain.errors import Conflict

ONE, TWO = (StoredImage(id=f"{number:08d}-0000-4000-8000-000000000000") for number in (1, 2))


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[sa.Engine]:
    opened = sa.create_engine(f"sqlite:///{tmp_path / 'api.db'}")
    yield opened
    opened.dispose()


SINCE = ("deactivated",)
"""Columns that the release does not know."""


def by_the_last_release(connection: sa.Connection, image: StoredImage) -> None:
    """Make an image as a release does that knows nothing of used ids."""
    values = {column.name: getattr(image, column.name) for column in table.c if column.name not in SINCE}
    known = sa.table(table.name, *(sa.column(name) for name in values))
    connection.execute(known.insert().values(values))


def test_an_upgrade_knows_the_ids_of_the_images_that_are_there(engine: sa.Engine) -> None:
    schema.upgrade(engine, "api", "0006")
    with engine.begin() as connection:
        by_the_last_release(connection, ONE)
    schema.upgrade(engine, "api")
    with engine.begin() as connection:
        connection.execute(table.delete())
        with pytest.raises(Conflict):
            images.insert(connection, ONE)


def test_an_image_that_the_last_release_made_keeps_its_id_when_this_one_removes_it(engine: sa.Engine) -> None:
    schema.upgrade(engine, "api")
    with engine.begin() as connection:
        by_the_last_release(connection, ONE)
        with connection.begin_nested() as savepoint:
            with pytest.raises(Conflict):
                images.insert(connection, ONE)
            savepoint.rollback()
        images.delete(connection, ONE.id)
        with pytest.raises(Conflict):
            images.insert(connection, ONE)
        images.insert(connection, TWO)
