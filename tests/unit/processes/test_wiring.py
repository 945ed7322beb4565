"""Host states have a database of their own, and a cell's own NATS servers a sign-in of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from skep.config.sections import (
    CellSettings,
    Config,
    DatabaseSettings,
    StateSettings,
    SynchronizerSettings,
    TransportSettings,
)
from skep.domain.errors import Misconfigured
from skep.processes.wiring import backend_of, transport_in_cell
from skep.telemetry.metrics import Metrics
from skep.transport.nats import NatsTransport


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
    with pytest.raises(Misconfigured, match=f"synchronizer.url: .* {setting}") as raised:
        backend_of(config(tmp_path, url.format(tmp_path)))
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("url", ["postgresql://skep@db/states", "postgresql://skep@db2/east", "sqlite:///{}/states.db"])
def test_one_of_its_own_is_taken(tmp_path: Path, url: str) -> None:
    backend_of(config(tmp_path, url.format(tmp_path)))


@pytest.mark.parametrize(
    ("url", "signs_in_by_file"),
    [
        ("nats://cell:secret@own:4222", False),
        ("nats://own:4222,nats://cell:secret@own2:4222", False),
        ("nats://own:4222", True),
        ("nats://cell:secret@shared:4222", True),
        ("", True),
    ],
)
def test_a_file_of_the_shared_servers_is_no_sign_in_to_others_that_name_a_user(
    url: str, signs_in_by_file: bool
) -> None:
    shared = TransportSettings(
        kind="nats", url="nats://shared:4222", sign_in_file="sign-in", credentials_file="creds", ca_file="ca.pem"
    )
    config = Config(transport=shared, cells=(CellSettings(name="east", transport_url=url), CellSettings(name="west")))
    transport = transport_in_cell(config, Metrics(), "skep", "east")
    assert isinstance(transport, NatsTransport)
    used = transport._settings
    assert (used.url, used.ca_file) == (url or shared.url, "ca.pem")
    files = ("sign-in", "creds") if signs_in_by_file else ("", "")
    assert (used.sign_in_file, used.credentials_file) == files
