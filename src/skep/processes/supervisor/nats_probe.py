"""Asks a NATS server on this machine whether it takes a user: by the few words of its protocol that this needs."""

from __future__ import annotations

import asyncio
import json

ANSWER_SECONDS = 5.0
ACCEPT_SECONDS = 10.0
"""How long a server may take to read its configuration again."""
POLL_SECONDS = 0.02


async def accepts(port: int, user: str, password: str) -> bool:
    """Tell whether a server lets a user in. Raises OSError or TimeoutError when it does not answer."""
    async with asyncio.timeout(ANSWER_SECONDS):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            await reader.readline()
            options = json.dumps({"user": user, "pass": password, "verbose": False, "pedantic": False})
            writer.write(f"CONNECT {options}\r\nPING\r\n".encode())
            return (await reader.readline()).startswith(b"PONG")
        finally:
            writer.close()


def is_accepted(port: int, user: str, password: str) -> bool:
    """Tell what `accepts` tells. Blocks."""
    return asyncio.run(accepts(port, user, password))


async def until_accepted(port: int, user: str, password: str) -> None:
    """Wait until a server lets a user in. Raises OSError or TimeoutError when it does not."""
    async with asyncio.timeout(ACCEPT_SECONDS):
        while True:
            if await accepts(port, user, password):
                return
            await asyncio.sleep(POLL_SECONDS)
