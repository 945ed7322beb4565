"""Who can open the password and files of a server."""

from __future__ import annotations

import base64
from pathlib import Path

import msgspec
from cryptography.fernet import Fernet

from skep.api.creating.contents import InjectedFile, Secrets
from skep.compute.drivers.contents import GuestContents, GuestFile
from skep.processes.hosts import contents_by

KEY = Fernet.generate_key()
SEALED = Fernet(KEY).encrypt(
    msgspec.json.encode(
        Secrets(admin_password="secret", files=(InjectedFile(path="/a", contents=base64.b64encode(b"\0b").decode()),))
    )
)


def test_what_the_api_seals_a_host_with_the_key_opens(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(KEY)
    found = contents_by(tmp_path / "key")(SEALED)
    assert found == GuestContents(admin_password="secret", files=(GuestFile(path="/a", contents=b"\0b"),))
    assert "secret" not in repr(found)


def test_a_host_without_the_key_opens_nothing(tmp_path: Path) -> None:
    (tmp_path / "another").write_bytes(Fernet.generate_key())
    for key in (tmp_path / "none", tmp_path / "another"):
        assert contents_by(key)(SEALED) is None
        assert not (tmp_path / "none").exists(), "and makes no key"
