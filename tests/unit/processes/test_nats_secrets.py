"""Secrets that users of NATS follow from: one follows another, and both are taken meanwhile."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from skep.domain.errors import Misconfigured
from skep.processes import nats_accounts, nats_secrets
from skep.processes.directory import StateDirectory
from skep.processes.nats_users import keys
from skep.processes.rotation import Rotation
from skep.transport.nats_accounts import NatsPasswords


def test_users_of_the_first_secret_stay_as_they_are_until_another_is_used(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path / "state")
    first = nats_accounts.url_above(directory, "nats://one:4222")
    content = directory.nats_key.read_bytes()
    assert first == f"nats://skep:{NatsPasswords(content).of('skep')}@one:4222", "as every release makes it"
    rotation = Rotation(directory)
    rotation.advance("nats", 1)
    assert nats_accounts.url_above(directory, "nats://one:4222") == first
    users = nats_accounts.passwords(directory).taken
    assert [one.name("skep").partition(".")[0] for one in users] == ["skep", "skep"]
    assert len({one.name("skep") for one in users}) == 2
    signer = keys(directory).operators
    rotation.advance("nats", 2)
    assert keys(directory).operators == signer[::-1]
    second = nats_accounts.url_above(directory, "nats://one:4222")
    assert second.startswith("nats://skep.")
    rotation.advance("nats", 3)
    assert nats_accounts.url_above(directory, "nats://one:4222") == second
    assert keys(directory).operators == signer[1:]
    assert rotation.record("nats") is None
    assert directory.nats_key.stat().st_mode & 0o777 == 0o600
    assert content not in directory.nats_key.read_bytes()


def test_a_rotation_that_ends_with_the_first_secret_leaves_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "nats.key"
    path.write_bytes(b"x" * 32)
    nats_secrets.add(path)
    nats_secrets.drop(path)
    assert path.read_bytes() == b"x" * 32


@pytest.mark.parametrize("rest", [b"", b"one\n", b"- %%%\n", b"a b c\n", b"\xff \xff\n"])
def test_a_file_that_was_spoilt_is_refused(tmp_path: Path, rest: bytes) -> None:
    path = tmp_path / "nats.key"
    path.write_bytes(nats_secrets.HEADER + rest)
    with pytest.raises(Misconfigured, match="holds no secrets"):
        nats_secrets.secrets_in(path)
    with pytest.raises(Misconfigured, match="cannot be used: No such file"):
        nats_secrets.secrets_in(tmp_path / "absent")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"x" * 31,
        nats_secrets.HEADER[:-1],
        nats_secrets.HEADER + b"- " + base64.b64encode(b"x" * 32)[:40],
        nats_secrets.HEADER + b"- " + base64.b64encode(b"x" * 32) + b"\nmark eHh4\n",
    ],
)
def test_a_file_of_which_the_end_is_missing_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "nats.key"
    path.write_bytes(content)
    with pytest.raises(Misconfigured, match=r"bytes, expected at least 32: copy the whole file again"):
        nats_secrets.secrets_in(path)
