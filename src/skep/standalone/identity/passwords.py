"""Passwords: hashed with scrypt in a few threads, so that signing in cannot take all of the machine."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import secrets
from concurrent.futures import ThreadPoolExecutor

from skep.domain.errors import Overloaded

BLOCK_SIZE = 8
PARALLELISM = 1
HASH_BYTES = 32


class Passwords:
    """Hashes and checks passwords; each costs the same whether the user exists or not."""

    def __init__(self, *, cost: int = 14, threads: int = 2, waiting: int = 64) -> None:
        """`cost` is the logarithm of scrypt's N; more than `waiting` calls beyond the running ones are refused."""
        self._cost = cost
        self._limit = threads + waiting
        self._inside = 0
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="password")

    async def hash(self, password: str) -> str:
        """Return a hash to store: `$scrypt$ln=..,r=..,p=..$salt$hash`.

        Raises Overloaded when too many wait.
        """
        salt = secrets.token_bytes(16)
        derived = await self._derive(password, salt, self._cost, BLOCK_SIZE, PARALLELISM)
        return f"$scrypt$ln={self._cost},r={BLOCK_SIZE},p={PARALLELISM}${_b64(salt)}${_b64(derived)}"

    async def verify(self, password: str, stored: str | None) -> bool:
        """Tell whether the password belongs to a stored hash; without one it takes as long and is false.

        Raises Overloaded when too many wait.
        """
        if stored is None:
            await self._derive(password, b"nobody's salt...", self._cost, BLOCK_SIZE, PARALLELISM)
            return False
        cost, block_size, parallelism, salt, expected = _parse(stored)
        derived = await self._derive(password, salt, cost, block_size, parallelism)
        return hmac.compare_digest(derived, expected)

    def close(self) -> None:
        """Finish what runs."""
        self._pool.shutdown()

    async def _derive(self, password: str, salt: bytes, cost: int, block_size: int, parallelism: int) -> bytes:
        if self._inside >= self._limit:
            raise Overloaded("too many sign-ins are waiting")
        self._inside += 1
        work = asyncio.get_running_loop().run_in_executor(
            self._pool, _scrypt, password.encode(), salt, cost, block_size, parallelism
        )
        # Counted until the thread is done: a caller that gives up does not make room for another.
        work.add_done_callback(self._left)
        return await asyncio.shield(work)

    def _left(self, _work: asyncio.Future[bytes]) -> None:
        self._inside -= 1


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
