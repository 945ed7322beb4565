"""Generates key pairs in processes of their own: the library holds the interpreter for as long as it takes.

`python -m skep.api.key_generation` reads what is asked from its standard input, and prints the pair, both as JSON.
"""

from __future__ import annotations

import asyncio
import sys

import msgspec

from skep.api.public_keys import Generated, generate
from skep.domain.decoding import json_decoder
from skep.domain.errors import TooManyRequests, Unavailable
from skep.domain.key_pairs import KeyType

MOST_OF_USER = 2
"""Pairs that one user waits for."""
MOST_WAITING = 8
"""Requests for which a pair is generated, one after the other; any more are refused."""
SECONDS = 30.0
"""A process that takes longer is ended."""


class WantedPair(msgspec.Struct, frozen=True):
    """What `generate` takes."""

    kind: KeyType
    user_id: str
    now: int


class KeyGenerator:
    """Generates one pair at a time, for few requests at once."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._waiting: list[str] = []
        """Users who wait for theirs, each as often."""

    async def generate(self, kind: KeyType, user_id: str, now: int) -> Generated:
        """Return a new pair.

        Raises Unavailable when too many wait for theirs, or the process failed; TooManyRequests for a user who waits
        for a few.
        """
        if self._waiting.count(user_id) >= MOST_OF_USER:
            raise TooManyRequests("Key pairs are being generated for this user. Try again when they are there.")
        if len(self._waiting) >= MOST_WAITING:
            raise Unavailable("Key pairs are being generated for others. Try again, or import a public key.")
        self._waiting.append(user_id)
        try:
            async with self._turn:
                return await _in_a_process(WantedPair(kind, user_id, now))
        finally:
            self._waiting.remove(user_id)


async def _in_a_process(wanted: WantedPair) -> Generated:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        __name__,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        printed, said = await asyncio.wait_for(process.communicate(msgspec.json.encode(wanted)), SECONDS)
    except TimeoutError:
        raise Unavailable("No key pair was generated in time. Try again, or import a public key.") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise Unavailable(f"No key pair was generated: {said.decode(errors='replace')[-200:]}")
    return json_decoder(Generated).decode(printed)


def main() -> None:
    """Generate the pair that is asked for."""
    wanted = json_decoder(WantedPair).decode(sys.stdin.buffer.read())
    sys.stdout.buffer.write(msgspec.json.encode(generate(wanted.kind, wanted.user_id, wanted.now)))


if __name__ == "__main__":
    main()
