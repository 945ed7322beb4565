"""The key file and the tokens made with it."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from skep.domain.errors import Misconfigured
from skep.standalone.identity.tokens import TokenPayload, Tokens
from skep.standalone.key_ring import KeyRing, add, drop, keys_in, name_of, take_in, use

PAYLOAD = TokenPayload(
    user_id="u", project_id=None, system=False, methods=("password",), issued_at=1, expires_at=2, audit_ids=("a",)
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "token-keys"


def test_the_file_is_the_owner_s_alone(path: Path) -> None:
    KeyRing(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [item.name for item in path.parent.iterdir()] == ["token-keys"]


def test_a_file_that_others_may_read_is_refused(path: Path) -> None:
    KeyRing(path)
    path.chmod(0o640)
    with pytest.raises(Misconfigured, match="chmod 600"):
        KeyRing(path)


def test_a_file_without_a_key_is_refused(path: Path) -> None:
    KeyRing(path)
    for content in (b"", b"nonsense\n"):
        path.write_bytes(content)
        with pytest.raises(Misconfigured):
            KeyRing(path)


def test_a_second_process_reads_the_first_one_s_tokens(path: Path) -> None:
    token = Tokens(KeyRing(path)).encode(PAYLOAD)
    assert Tokens(KeyRing(path)).decode(token) == PAYLOAD
    assert Tokens(KeyRing(path.with_name("other"))).decode(token) is None


def test_each_step_is_followed_by_who_runs(path: Path) -> None:
    one, two = Tokens(KeyRing(path)), Tokens(KeyRing(path))
    old = one.encode(PAYLOAD)
    name = add(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert Fernet(keys_in(path)[0]).decrypt(padded(one.encode(PAYLOAD)))
    use(path, name)
    new = one.encode(PAYLOAD)
    assert name_of(keys_in(path)[0]) == name
    assert Fernet(keys_in(path)[0]).decrypt(padded(new))
    assert [two.decode(new), two.decode(old)] == [PAYLOAD, PAYLOAD]
    assert len(drop(path)) == 1
    assert [two.decode(new), two.decode(old)] == [PAYLOAD, None]


def padded(token: str) -> str:
    return token + "=" * (-len(token) % 4)


def test_what_is_used_must_be_there(path: Path) -> None:
    KeyRing(path)
    before = path.read_bytes()
    with pytest.raises(Misconfigured, match="holds no key 0123"):
        use(path, "0123")
    assert path.read_bytes() == before


def test_keys_of_another_file_read_and_do_not_encrypt(path: Path) -> None:
    ring, other = KeyRing(path), KeyRing(path.with_name("other"))
    sealed = other.encrypt(b"of a backup")
    take_in(path, path.with_name("other"))
    take_in(path, path.with_name("other"))
    assert len(keys_in(path)) == 2
    assert ring.decrypt(sealed) == b"of a backup"
    assert other.decrypt(ring.encrypt(b"of today")) is None


def test_tokens_carry_no_padding(path: Path) -> None:
    assert "=" not in Tokens(KeyRing(path)).encode(PAYLOAD)
