"""Who a request comes from, behind a proxy and without one."""

from __future__ import annotations

import pytest
from starlette.types import Receive, Scope, Send
from structlog.testing import capture_logs

from skep.processes.forwarded import Forwarded, client_behind

PROXY = "192.0.2.10"


async def seen(peer: str, headers: list[tuple[bytes, bytes]], *trusted: str) -> tuple[str, str]:
    """Return client and scheme that the application sees."""
    found: list[tuple[str, str]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        found.append((scope["client"][0], scope["scheme"]))

    scope = {"type": "http", "client": (peer, 1), "scheme": "http", "headers": headers}

    async def nothing(*_: object) -> dict[str, object]:
        return {}

    await Forwarded(app, trusted)(scope, nothing, nothing)  # type: ignore[arg-type]
    return found[0]


FOR = b"x-forwarded-for"


async def test_a_trusted_proxy_names_the_client() -> None:
    assert await seen(PROXY, [(FOR, b"203.0.113.7")], PROXY) == ("203.0.113.7", "http")


async def test_what_the_client_wrote_itself_is_not_believed() -> None:
    assert await seen(PROXY, [(FOR, b"10.0.0.1"), (FOR, b"203.0.113.7")], PROXY) == ("203.0.113.7", "http")


async def test_nobody_else_names_a_client() -> None:
    with capture_logs() as logs:
        assert await seen("127.0.0.1", [(FOR, b"203.0.113.7")]) == ("127.0.0.1", "http")
    assert [line["proxy"] for line in logs] == ["127.0.0.1"]


@pytest.mark.parametrize(
    ("peer", "trusted", "scheme"),
    [("127.0.0.1", (), "https"), (PROXY, (PROXY,), "https"), (PROXY, (), "http")],
)
async def test_the_scheme_is_believed_of_this_machine_and_of_trusted_proxies(
    peer: str, trusted: tuple[str, ...], scheme: str
) -> None:
    assert (await seen(peer, [(b"x-forwarded-proto", b"https")], *trusted))[1] == scheme


@pytest.mark.parametrize(
    ("hops", "client"),
    [
        (["203.0.113.7", "192.0.2.11"], "203.0.113.7"),
        (["nonsense"], PROXY),
        (["nonsense", "192.0.2.11"], "192.0.2.11"),
        (["192.0.2.11"], "192.0.2.11"),
    ],
)
def test_proxies_in_a_row(hops: list[str], client: str) -> None:
    assert client_behind(PROXY, hops, frozenset({PROXY, "192.0.2.11"})) == client
