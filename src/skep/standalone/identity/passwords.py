"""Passwords: hashed with scrypt in a few threads, so that signing in cannot take all of the machine."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from skep.standalone.identity.turns import Place, Turns

BLOCK_SIZE = 8
PARALLELISM = 1
HASH_BYTES = 32

OWN = Place()
"""Where the service's own work and an admin's waits."""


class Passwords:
    """Hashes and checks passwords; each costs the same whether the user exists or not."""

    def __init__(self, *, cost: int = 14, threads: int = 2, waiting: int = 64) -> None:
        """`cost` is the logarithm of scrypt's N; more than `waiting` calls beyond the running ones are refused."""
        self._cost = cost
        self._turns = Turns(threads, waiting)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="password")

    @property
    def waiting(self) -> int:
        """How many passwords wait for a thread."""
        return self._turns.waiting

    async def hash(self, password: str, place: Place = OWN) -> str:
        """Return a hash to store: `$scrypt$ln=..,r=..,p=..$salt$hash`. `place`: where a user waits who may ask often.

        Raises Overloaded when too many wait.
        """
        salt = secrets.token_bytes(16)
        async with self.turn(place) as turn:
            derived = await turn.derive(password, salt, self._cost, BLOCK_SIZE, PARALLELISM)
        return f"$scrypt$ln={self._cost},r={BLOCK_SIZE},p={PARALLELISM}${_b64(salt)}${_b64(derived)}"

    async def verify(self, password: str, stored: str | None) -> bool:
        """Tell whether the password belongs to a stored hash; without one it takes as long and is false.

        Raises Overloaded when too many wait.
        """
        async with self.turn(OWN) as turn:
            return await turn.verify(password, stored)

    @asynccontextmanager
    async def turn(self, place: Place) -> AsyncIterator[Turn]:
        """Wait at a place for a thread; the block may use it, and the next one's turn comes when the block has ended.

        Raises Overloaded when too many wait.
        """
        await self._turns.begin(place)
        turn = Turn(self._pool, self._cost)
        try:
            yield turn
        finally:
            turn.when_done(self._turns.end)

    def close(self) -> None:
        """Finish what runs."""
        self._pool.shutdown()


class Turn:
    """One use of a thread."""

    def __init__(self, pool: ThreadPoolExecutor, cost: int) -> None:
        self._pool = pool
        self._cost = cost
        self._work: asyncio.Future[bytes] | None = None

    async def verify(self, password: str, stored: str | None) -> bool:
        """Tell whether the password belongs to a stored hash; without one it takes as long and is false."""
        if stored is None:
            await self.derive(password, b"nobody's salt...", self._cost, BLOCK_SIZE, PARALLELISM)
            return False
        cost, block_size, parallelism, salt, expected = _parse(stored)
        return hmac.compare_digest(await self.derive(password, salt, cost, block_size, parallelism), expected)

    async def derive(self, password: str, salt: bytes, cost: int, block_size: int, parallelism: int) -> bytes:
        """Return what scrypt makes of a password."""
        self._work = asyncio.get_running_loop().run_in_executor(
            self._pool, _scrypt, password.encode(), salt, cost, block_size, parallelism
        )
        return await asyncio.shield(self._work)

    def when_done(self, step: Callable[[], None]) -> None:
        """Take a step when the thread is free again: a caller that gives up does not make room for another."""
        if self._work is None or self._work.done():
            step()
        else:
            self._work.add_done_callback(lambda _: step())


def _scrypt(password: bytes, salt: bytes, cost: int, block_size: int, parallelism: int) -> bytes:
    memory = 128 * block_size * (1 << cost)
    return hashlib.scrypt(
        password, salt=salt, n=1 << cost, r=block_size, p=parallelism, maxmem=2 * memory, dklen=HASH_BYTES
    )


def _parse(stored: str) -> tuple[int, int, int, bytes, bytes]:
    try:
        _, kind, parameters, salt, expected = stored.split("$")
        values = dict(item.split("=") for item in parameters.split(","))
        if kind != "scrypt":
            raise ValueError(kind)
        return int(values["ln"]), int(values["r"]), int(values["p"]), _unb64(salt), _unb64(expected)
    except (ValueError, KeyError, binascii.Error) as error:
        raise ValueError("a stored password hash cannot be read") from error


def _b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _unb64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
