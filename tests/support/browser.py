"""A real browser, told what to do by the DevTools protocol."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect

from skep.contracts.eventually import PATIENCE

PARTS = (pytest.mark.needs_part("chromium"),)
LISTENS = re.compile(rb"DevTools listening on (ws://\S+)")
ARGUMENTS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    *("--remote-debugging-port=0", "--disable-background-networking", "--disable-component-update"),
)


class Page:
    """One page that the browser shows."""

    def __init__(self, tools: ClientConnection, session: str, numbers: itertools.count[int]) -> None:
        self._tools = tools
        self._session = session
        self._numbers = numbers

    async def value(self, expression: str) -> Any:
        """Return what an expression is in the page."""
        said = await self._ask("Runtime.evaluate", expression=expression, returnByValue=True)
        return said["result"].get("value")

    async def press(self, key: str) -> None:
        """Press a key that stands for one letter, and let it go."""
        code = {"key": key, "code": f"Key{key.upper()}", "windowsVirtualKeyCode": ord(key.upper())}
        await self._ask("Input.dispatchKeyEvent", type="keyDown", text=key, **code)
        await self._ask("Input.dispatchKeyEvent", type="keyUp", **code)

    async def _ask(self, method: str, **parameters: Any) -> Any:
        return await _ask(self._tools, next(self._numbers), method, parameters, self._session)


@contextlib.asynccontextmanager
async def shown(url: str, directory: Path) -> AsyncIterator[Page]:
    """Give a page of a browser that has its state in a directory, and end the browser."""
    browser = await asyncio.create_subprocess_exec(
        "chromium",
        *ARGUMENTS,
        f"--user-data-dir={directory}",
        "about:blank",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with connect(await _address(browser), max_size=None, open_timeout=PATIENCE) as tools:
            numbers = itertools.count(1)
            made = await _ask(tools, next(numbers), "Target.createTarget", {"url": url})
            where = {"targetId": made["targetId"], "flatten": True}
            attached = await _ask(tools, next(numbers), "Target.attachToTarget", where)
            yield Page(tools, attached["sessionId"], numbers)
    finally:
        with contextlib.suppress(ProcessLookupError):
            browser.terminate()
        # What it says is not read any more, and must not keep it.
        await browser.communicate()


async def _address(browser: asyncio.subprocess.Process) -> str:
    assert browser.stderr is not None
    async with asyncio.timeout(PATIENCE):
        while line := await browser.stderr.readline():
            if found := LISTENS.search(line):
                return found.group(1).decode()
    raise AssertionError("the browser ended before it listened")


async def _ask(
    tools: ClientConnection, number: int, method: str, parameters: dict[str, Any], session: str | None = None
) -> Any:
    asked = {"id": number, "method": method, "params": parameters}
    await tools.send(json.dumps(asked if session is None else {**asked, "sessionId": session}))
    async with asyncio.timeout(PATIENCE):
        while True:
            said = json.loads(await tools.recv())
            if said.get("id") == number:
                assert "error" not in said, said
                return said["result"]
