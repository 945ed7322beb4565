"""What a new host is told of its messaging: never the user and password of the level above."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from skep.config.sections import Config, TransportSettings
from skep.domain.cells import Cell
from skep.domain.errors import Misconfigured
from skep.domain.ids import CellUuid, new_uuid
from skep.processes.directory import StateDirectory
from skep.processes.nats_accounts import HostUser, messaging_of_hosts

CELL = Cell(uuid=CellUuid(new_uuid()), name="cell1")
ABOVE = "nats://n1:4222,nats://above:secret@n2:4222"


def told(tmp_path: Path, own_url: str = "", url: str = ABOVE, public_url: str = "", accounts: bool = False) -> str:
    transport = TransportSettings(kind="nats", url=url, public_url=public_url, accounts=accounts)
    config = replace(Config(), transport=transport)
    return messaging_of_hosts(config, StateDirectory(tmp_path), CELL, own_url).url


def test_the_user_above_is_told_to_nobody(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"transport\.url .*transport\.accounts.*transport\.public_url") as raised:
        told(tmp_path)
    assert "secret" not in str(raised.value)


def test_nor_is_that_of_a_cells_own_servers(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"cell cell1 .*transport\.accounts"):
        told(tmp_path, own_url="nats://above:secret@own:4222", url="nats://n1:4222")


def test_an_address_without_a_user_or_for_hosts_is_told(tmp_path: Path) -> None:
    assert told(tmp_path, url="nats://n1:4222") == "nats://n1:4222"
    assert told(tmp_path, public_url="nats://hosts:theirs@n1:4222") == "nats://hosts:theirs@n1:4222"


def test_with_accounts_a_host_signs_in_to_its_cells(tmp_path: Path) -> None:
    assert f"//{CELL.uuid}.compute:" in told(tmp_path, accounts=True)


def test_a_host_with_a_user_of_its_own_is_told_no_password_of_others(tmp_path: Path) -> None:
    transport = TransportSettings(kind="nats", url=ABOVE, host_users=True)
    config, user = replace(Config(), transport=transport), HostUser(credentials="its own", inbox="_INBOX.n")
    directory = StateDirectory(tmp_path)
    told = messaging_of_hosts(config, directory, CELL, "", user)
    assert (told.url, told.credentials, told.inbox) == ("nats://n1:4222,nats://n2:4222", "its own", "_INBOX.n")
    assert "its own" not in repr(told)


def test_while_servers_are_changed_over_it_is_told_both(tmp_path: Path) -> None:
    transport = TransportSettings(kind="nats", url=ABOVE, host_users=True, accounts=True)
    config, user = replace(Config(), transport=transport), HostUser(credentials="its own", inbox="_INBOX.n")
    told = messaging_of_hosts(config, StateDirectory(tmp_path), CELL, "", user)
    assert f"//{CELL.uuid}.compute:" in told.url
    assert told.credentials == "its own"


def test_a_cells_own_servers_know_no_users_of_hosts(tmp_path: Path) -> None:
    transport = TransportSettings(kind="nats", url=ABOVE, host_users=True, accounts=True)
    config, user = replace(Config(), transport=transport), HostUser(credentials="its own", inbox="_INBOX.n")
    told = messaging_of_hosts(config, StateDirectory(tmp_path), CELL, "nats://own:4222", user)
    assert (told.credentials, told.inbox) == ("", "")
