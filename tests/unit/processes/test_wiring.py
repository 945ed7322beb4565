"""Host states have a database of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from skep.config.sections import CellSettings, Config, DatabaseSettings, StateSettings, SynchronizerSettings
from skep.domain.errors import Misconfigured
from skep.processes.wiring import backend_of


def config(tmp_path: Path, url: str) -> Config:
    return Config(
        state=StateSettings(directory=str(tmp_path)),
        database=DatabaseSettings(directory=str(tmp_path / "db"), api_url="postgresql://skep:secret@db/skep"),
        cells=(CellSettings(name="east", database_url="postgresql://skep@db2:5433/east"), CellSettings(name="west")),
        synchronizer=SynchronizerSettings(backend="sql", url=url),
    )


@pytest.mark.parametrize(
    ("url", "setting"),
    [
        ("postgresql+psycopg://another@db:5432/skep", "database.api_url"),
        ("postgresql://skep@/east?host=db2&port=5433", "database_url of cell east"),
        ("sqlite:///{}/db/../db/west.db", "database_url of cell west"),
        ("sqlite:///{}/db/cell0.db", "database.cell0_url"),
    ],
)
def test_the_database_of_the_api_or_a_cell_is_refused(tmp_path: Path, url: str, setting: str) -> None:
    with pytest.raises(Misconfigured, match=f"synchronizer.url is the same database as {setting}:") as raised:
        backend_of(config(tmp_path, url.format(tmp_path)))
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("url", ["postgresql://skep@db/states", "postgresql://skep@db2/east", "sqlite:///{}/states.db"])
def test_one_of_its_own_is_taken(tmp_path: Path, url: str) -> None:
    backend_of(config(tmp_path, url.format(tmp_path)))
