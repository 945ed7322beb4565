"""Root that replaces a file leaves it to the user that it belonged to, or to the owner of its directory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from skep.processes import nats_accounts
from skep.processes.directory import StateDirectory, write_private
from skep.processes.rotation import Rotation, Secret
from skep.processes.supervisor.passwords import ServerPasswords, replaced

SKEP = 12345
"""A user that is not root."""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


def _given(root: Path) -> StateDirectory:
    """Make a state directory with a file of each kind, and give all to a user."""
    directory = StateDirectory(root / "state")
    directory.open()
    directory.close()
    directory.seal()
    nats_accounts.all_secrets(directory)
    directory.token_keys.write_bytes(directory.secrets_key.read_bytes())
    directory.servers.mkdir()
    write_private(directory.servers / "passwords.json", b"{}")
    for path in (directory.root, *directory.root.rglob("*")):
        os.chown(path, SKEP, SKEP)
    return directory


def _foreign(directory: StateDirectory) -> set[str]:
    found = [path for path in directory.root.rglob("*") if (path.stat().st_uid, path.stat().st_gid) != (SKEP, SKEP)]
    return {str(path.relative_to(directory.root)) for path in found}


def _rotated(secret: Secret) -> Callable[[StateDirectory], object]:
    return lambda directory: [Rotation(directory).advance(secret, 1) for _ in range(3)]


@pytest.mark.parametrize(
    "change",
    [
        _rotated("tokens"),
        _rotated("sealing"),
        _rotated("nats"),
        lambda directory: ServerPasswords(directory.servers / "passwords.json").change(replaced),
        lambda directory: write_private(directory.clouds_yaml, b"new"),
        lambda directory: (directory.secrets_key.unlink(), directory.seal()),
    ],
    ids=["tokens", "sealing", "nats", "servers", "new file", "first key"],
)
def test_files_of_another_user_stay_its_own(tmp_path: Path, change: Callable[[StateDirectory], object]) -> None:
    directory = _given(tmp_path)
    change(directory)
    assert _foreign(directory) == set()
