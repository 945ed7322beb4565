"""Which cells and hosts a start has, from what is there and what was asked for."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from skep.config.sections import Config
from skep.config.urls import masked
from skep.database.api import cells as cell_rows
from skep.database.opening import open_database
from skep.domain.cells import Cell
from skep.domain.errors import Misconfigured
from skep.domain.ids import CellUuid, new_uuid
from skep.processes import addresses
from skep.processes.databases import Places
from skep.processes.directory import StateDirectory
from skep.processes.installation import choose_cells, choose_hosts, refuse_missing, renew_addresses


def test_a_new_installation_has_what_was_asked_for() -> None:
    assert choose_cells((), (), None).names == ("cell1", "cell2")
    assert choose_cells((), (), 1).names == ("cell1",)
    assert choose_cells((), ("east", "west"), 5).names == ("east", "west")


def test_cells_become_more_and_never_fewer() -> None:
    known = ("cell1", "cell2")
    assert choose_cells(known, (), None) == choose_cells(known, (), 2)
    assert choose_cells(known, (), 2).notes == ()
    fewer = choose_cells(known, (), 1)
    assert fewer.names == known
    assert fewer.notes == ("the installation has 2 cells, all stay: cell1, cell2",)
    assert choose_cells(known, (), 3).names == ("cell1", "cell2", "cell3")
    assert choose_cells(("cell2",), (), 3, ["cell3"]).names == ("cell2", "cell1", "cell4")


def test_configured_cells_stand_beside_those_that_are_there() -> None:
    chosen = choose_cells(("cell1", "east"), ("east", "west"), None)
    assert chosen.names == ("cell1", "east", "west")
    (note,) = chosen.notes
    assert note.startswith("cell cell1 is not in the configuration and stays")
    assert "`skep cell disable cell1`" in note
    assert "`skep cell delete cell1`" in note


def test_hosts_become_more_and_never_fewer() -> None:
    assert choose_hosts("c", (), None, 3).names == ("c-host1", "c-host2", "c-host3")
    assert choose_hosts("c", ("c-host1",), None, 3).names == ("c-host1",)
    assert choose_hosts("c", ("c-host2",), 2, 3).names == ("c-host2", "c-host1")
    fewer = choose_hosts("c", ("c-host1", "other"), 1, 3)
    assert fewer.names == ("c-host1", "other")
    assert fewer.notes == ("c has 2 hosts, all stay",)


def test_hosts_are_the_directories(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path)
    assert directory.hosts("cell1") == ()
    for host in ("cell1-host10", "cell1-host2"):
        directory.host("cell1", host).mkdir(parents=True)
    assert directory.hosts("cell1") == ("cell1-host2", "cell1-host10")


def test_a_missing_database_is_refused(tmp_path: Path) -> None:
    paths = {name: tmp_path / f"{name}.db" for name in ("api", "cell0", "cell1")}
    refuse_missing(paths, ())
    paths["cell1"].touch()
    with pytest.raises(Misconfigured, match=r"the API database .*api\.db is missing.*cell1 \("):
        refuse_missing(paths, ())
    paths["api"].touch()
    refuse_missing(paths, ())
    with pytest.raises(Misconfigured, match=r"cell0, .*cell0\.db, is missing.*skep db forget-cell cell0 --yes"):
        refuse_missing(paths, ("cell0", "cell1"))


async def test_addresses_of_cells_follow_servers_that_take_other_passwords(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path)
    directory.open()
    places = Places(Config(), directory)
    database = await open_database("api", places.api, upgrade=True)
    old = {"east": "postgresql://postgres@127.0.0.1:5432/east", "west": "", "south": "postgresql://u:p@far/south"}
    for name, url in old.items():
        cell = Cell(uuid=CellUuid(new_uuid()), name=name)
        where = addresses.to_store(directory, url, "nats://here" if url else "")
        await database.write(partial(cell_rows.add, cell=cell, now=1, addresses=where))

    def renewed(url: str) -> str:
        return url.replace("postgres@", "east:secret@")

    assert renew_addresses(places, directory, renewed, str) == ("east",)
    assert renew_addresses(places, directory, renewed, str) == ()
    rows = {cell.name: where for cell, where in await database.read(cell_rows.located)}
    assert addresses.database_url(directory, rows["east"]) == "postgresql://east:secret@127.0.0.1:5432/east"
    assert (rows["east"].database_url, rows["east"].transport_url) == (masked(renewed(old["east"])), "nats://here")
    assert addresses.database_url(directory, rows["south"]) == old["south"]
    assert rows["west"] == cell_rows.NOWHERE
    await database.close()
    directory.close()
