from __future__ import annotations

import msgspec
import pytest

from skep.api.console_tokens import ConsoleToken, end_of, read_token, write_token
from skep.domain.consoles import ConsoleDoor
from skep.domain.ids import CellUuid, InstanceUuid

NOW = 1_800_000_000_000_000
TOKEN = ConsoleToken(
    instance=InstanceUuid("s1"),
    cell=CellUuid("c1"),
    host="host-1",
    attempt=2,
    kind="serial",
    door=ConsoleDoor(address="127.0.0.1", port=4711, secret="5e" * 32),
    until=end_of(NOW, 600),
)


def seal(plain: bytes) -> bytes:
    return plain.hex().encode()


def unseal(sealed: bytes) -> bytes | None:
    try:
        return bytes.fromhex(sealed.decode())
    except ValueError:
        return None


def test_what_is_written_is_read_until_it_ends() -> None:
    text = write_token(seal, TOKEN)
    assert read_token(unseal, text, NOW) == TOKEN
    assert read_token(unseal, text, TOKEN.until - 1) == TOKEN
    assert read_token(unseal, text, TOKEN.until) is None


@pytest.mark.parametrize(
    "text", ["", "x", "é", seal(b"skep image ticket {}").decode(), seal(b"skep console token {").decode()]
)
def test_what_is_no_token(text: str) -> None:
    assert read_token(unseal, text, NOW) is None


def test_what_else_the_key_seals_is_no_token() -> None:
    assert read_token(unseal, seal(msgspec.json.encode(TOKEN)).decode(), NOW) is None


def test_secrets_are_not_shown() -> None:
    assert "sesame" not in repr(TOKEN)
