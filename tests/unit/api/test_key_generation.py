"""Key pairs are generated one at a time, in processes of their own, for few at once."""

from __future__ import annotations

import asyncio

import pytest

from skep.api.key_generation import MOST_OF_USER, MOST_WAITING, KeyGenerator
from skep.api.public_keys import fingerprint
from skep.domain.errors import TooManyRequests, Unavailable


async def test_a_pair_is_generated_and_more_than_a_few_at_once_are_refused() -> None:
    generator = KeyGenerator()
    waiting = [asyncio.ensure_future(generator.generate("ssh", f"u{number}", 1)) for number in range(MOST_WAITING)]
    await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="generated for others"):
        await generator.generate("ssh", "me", 1)
    pair = await waiting[0]
    assert fingerprint("ssh", pair.public_key) is not None
    assert pair.private_key.startswith("-----BEGIN")
    for one in waiting[1:]:
        one.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    # Those that gave up hold nobody up.
    assert fingerprint("x509", (await generator.generate("x509", "me", 1)).public_key) is not None


async def test_one_user_leaves_room_for_others() -> None:
    generator = KeyGenerator()
    mine = [asyncio.ensure_future(generator.generate("ssh", "me", 1)) for _ in range(MOST_OF_USER)]
    await asyncio.sleep(0)
    with pytest.raises(TooManyRequests, match="for this user"):
        await generator.generate("ssh", "me", 1)
    other = asyncio.ensure_future(generator.generate("ssh", "other", 1))
    for one in mine:
        one.cancel()
    await asyncio.gather(*mine, return_exceptions=True)
    assert fingerprint("ssh", (await other).public_key) is not None
