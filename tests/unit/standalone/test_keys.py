"""The key file and the tokens made with it."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from skep.domain.errors import Misconfigured
from skep.standalone.identity.keys import KEYS_KEPT, TokenKeys, rotate
from skep.standalone.identity.tokens import TokenPayload, Tokens

PAYLOAD = TokenPayload(
    user_id="u", project_id=None, system=False, methods=("password",), issued_at=1, expires_at=2, audit_ids=("a",)
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "token-keys"


def test_the_file_is_the_owner_s_alone(path: Path) -> None:
    TokenKeys(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [item.name for item in path.parent.iterdir()] == ["token-keys"]


def test_a_file_that_others_may_read_is_refused(path: Path) -> None:
    TokenKeys(path)
    path.chmod(0o640)
    with pytest.raises(Misconfigured, match="chmod 600"):
        TokenKeys(path)


def test_a_file_without_a_key_is_refused(path: Path) -> None:
    TokenKeys(path)
    for content in (b"", b"nonsense\n"):
        path.write_bytes(content)
        with pytest.raises(Misconfigured):
            TokenKeys(path)


def test_a_second_process_reads_the_first_one_s_tokens(path: Path) -> None:
    token = Tokens(TokenKeys(path)).encode(PAYLOAD)
    assert Tokens(TokenKeys(path)).decode(token) == PAYLOAD
    assert Tokens(TokenKeys(path.with_name("other"))).decode(token) is None


def test_rotation_is_followed_by_who_runs(path: Path) -> None:
    one, two = Tokens(TokenKeys(path)), Tokens(TokenKeys(path))
    old = one.encode(PAYLOAD)
    rotate(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    new = one.encode(PAYLOAD)
    assert two.decode(new) == PAYLOAD
    assert two.decode(old) == PAYLOAD
    for _ in range(KEYS_KEPT):
        rotate(path)
    assert len(path.read_bytes().split()) == KEYS_KEPT
    assert Tokens(TokenKeys(path)).decode(old) is None


def test_tokens_carry_no_padding(path: Path) -> None:
    assert "=" not in Tokens(TokenKeys(path)).encode(PAYLOAD)
