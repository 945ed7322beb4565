"""The viewer of screens: what is served, and what its page may do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from skep.api.console_pages import MARK, OURS, PAGE, console_pages, has_viewer


@pytest.fixture
def novnc(tmp_path: Path) -> Path:
    directory = tmp_path / "novnc"
    (directory / MARK.parent / "util").mkdir(parents=True)
    (directory / MARK).write_text("export default 1;")
    (directory / MARK.parent / "util" / "int.js").write_text("export default 2;")
    (directory / "vnc.html").write_text("theirs")
    (tmp_path / "secret.js").write_text("secret")
    return directory


@pytest.fixture
async def client(novnc: Path) -> AsyncIterator[httpx.AsyncClient]:
    pages = console_pages(novnc, ("panel.example", "not a host; script-src *"))
    transport = httpx.ASGITransport(pages)
    async with httpx.AsyncClient(transport=transport, base_url="http://api.example") as opened:
        yield opened


async def test_the_page_reaches_its_own_server_only(client: httpx.AsyncClient) -> None:
    answer = await client.get(PAGE)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    policy = answer.headers["content-security-policy"].split("; ")
    assert {"default-src 'none'", "script-src 'self'", "connect-src 'self'"} <= set(policy)
    assert "frame-ancestors 'self' panel.example:*" in policy
    assert answer.headers["referrer-policy"] == "no-referrer", "the address has a token"
    assert "<script>" not in answer.text


@pytest.mark.parametrize("path", [*OURS, "core/rfb.js", "core/util/int.js"])
async def test_files_of_the_viewer(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(f"{PAGE}{path}")
    assert answer.status_code == 200
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "path",
    [
        "vnc.html",
        "core",
        "core/",
        "core/missing.js",
        "core/../vnc.html",
        "%2e%2e/secret.js",
        "core/%2e%2e/%2e%2e/secret.js",
    ],
)
async def test_nothing_else_is_served(client: httpx.AsyncClient, path: str) -> None:
    assert (await client.get(f"{PAGE}{path}")).status_code == 404


async def test_nothing_is_posted(client: httpx.AsyncClient) -> None:
    assert (await client.post(PAGE)).status_code == 405


def test_a_machine_may_lack_it(novnc: Path, tmp_path: Path) -> None:
    assert has_viewer(novnc)
    assert not has_viewer(tmp_path)
