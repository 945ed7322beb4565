"""Password hashes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from skep.domain.errors import Overloaded
from skep.standalone.identity.passwords import Passwords


@pytest.fixture
def passwords() -> Iterator[Passwords]:
    opened = Passwords(cost=10, threads=1, waiting=1)
    yield opened
    opened.close()


async def test_only_the_right_password_fits(passwords: Passwords) -> None:
    stored = await passwords.hash("secret")
    assert stored.startswith("$scrypt$ln=10,r=8,p=1$")
    assert await passwords.verify("secret", stored)
    assert not await passwords.verify("Secret", stored)
    assert not await passwords.verify("", stored)


async def test_two_hashes_of_one_password_differ(passwords: Passwords) -> None:
    assert await passwords.hash("secret") != await passwords.hash("secret")


async def test_nobody_s_password_is_wrong(passwords: Passwords) -> None:
    assert not await passwords.verify("secret", None)


async def test_a_hash_of_another_cost_is_read(passwords: Passwords) -> None:
    dearer = Passwords(cost=15)
    try:
        assert await passwords.verify("secret", await dearer.hash("secret"))
    finally:
        dearer.close()


async def test_too_many_are_turned_away_and_room_comes_back(passwords: Passwords) -> None:
    outcomes = await asyncio.gather(*(passwords.hash("x") for _ in range(5)), return_exceptions=True)
    refused = [outcome for outcome in outcomes if isinstance(outcome, Overloaded)]
    assert len(refused) == 3
    assert refused[0].retry_after > 0
    assert await passwords.hash("x")


@pytest.mark.parametrize("stored", ["", "plain", "$bcrypt$a$b$c", "$scrypt$ln=10$!$!"])
async def test_a_broken_hash_is_a_bug(passwords: Passwords, stored: str) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        await passwords.verify("x", stored)
