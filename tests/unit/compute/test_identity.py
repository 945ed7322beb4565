"""Which node a host is, and its key, across starts."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from skep.compute.identity import IDENTITY_FILE, HostIdentity, load, load_or_mint
from skep.domain.errors import Misconfigured
from skep.domain.ids import NodeUuid, new_uuid


def test_it_is_minted_once_and_nobody_else_may_read_it(tmp_path: Path) -> None:
    assert load(tmp_path) is None
    first = load_or_mint(tmp_path, "h1")
    assert len(first.seed) == 32
    assert load_or_mint(tmp_path, "h1") == first == load(tmp_path)
    assert (tmp_path / IDENTITY_FILE).stat().st_mode & 0o077 == 0
    assert "seed" not in repr(first)


def test_a_file_of_a_release_without_keys_gets_one_and_keeps_its_node(tmp_path: Path) -> None:
    node = NodeUuid(new_uuid())
    (tmp_path / IDENTITY_FILE).write_bytes(msgspec.json.encode({"node": node, "host": "h1"}))
    identity = load_or_mint(tmp_path, "h1")
    assert identity.node == node
    assert identity.seed
    assert load_or_mint(tmp_path, "h1") == identity


def test_a_directory_of_another_host_is_refused_and_not_written(tmp_path: Path) -> None:
    load_or_mint(tmp_path, "h1")
    before = (tmp_path / IDENTITY_FILE).read_bytes()
    with pytest.raises(Misconfigured, match="belongs to host 'h1', this agent is 'h2'"):
        load_or_mint(tmp_path, "h2")
    assert (tmp_path / IDENTITY_FILE).read_bytes() == before


UUID = "0b6c7f0e-1f4e-4f0e-8a57-0d8a3a3a1a01"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        msgspec.json.encode({"node": "x", "host": "h1"}),
        msgspec.json.encode(HostIdentity(node=NodeUuid(UUID), host="h1", seed=b"short")),
    ],
)
def test_a_damaged_file_is_said_to_be_one(tmp_path: Path, content: bytes) -> None:
    (tmp_path / IDENTITY_FILE).write_bytes(content)
    with pytest.raises(Misconfigured, match=r"identity\.json"):
        load_or_mint(tmp_path, "h1")
