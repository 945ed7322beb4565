"""A cloud's identity and images for tests: the embedded services on a temporary directory, and over real HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from starlette.types import ASGIApp

from skep.contracts.databases import lay_out
from skep.contracts.eventually import eventually
from skep.database.engine import Database
from skep.domain.clock import Clock, Timestamp
from skep.standalone.identity.app import identity_app
from skep.standalone.identity.bootstrap import Bootstrapped, ensure_bootstrap
from skep.standalone.identity.service import StandaloneIdentity
from skep.standalone.identity.settings import IdentitySettings, standard_catalogue
from skep.standalone.images.app import images_app
from skep.standalone.images.files import Space
from skep.standalone.images.service import StandaloneImages
from skep.standalone.images.settings import ImagesSettings
from skep.standalone.networks.app import networks_app
from skep.standalone.networks.callers import NetworksApi
from skep.standalone.networks.settings import NetworksSettings

PASSWORDS = {"admin": "admin-password", "demo": "demo-password"}
"""Of the first users in tests."""

QUICK_SCRYPT = 10
"""A cost of password hashes that is enough for tests."""


class SteppedClock(Clock):
    """Stands still until it is told to go on."""

    def __init__(self, at: int = 1_800_000_000_000_000) -> None:
        self._at = at

    def now(self) -> Timestamp:
        """Return the time it was set to."""
        return Timestamp(self._at)

    def advance(self, seconds: float) -> None:
        """Go on."""
        self._at += round(seconds * 1_000_000)


class _Server(uvicorn.Server):
    """Leaves the signals of the test's process alone, and ends as soon as it is told: uvicorn looks each 0.1 s only."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.end = asyncio.Event()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self.end.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for listening in self.servers:
            listening.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await eventually(self._is_quiet, "all requests are answered, all connections closed")
        for listener in sockets or ():
            listener.close()

    async def _is_quiet(self) -> bool:
        return not (self.server_state.connections or self.server_state.tasks)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def serving(*apps: tuple[ASGIApp, socket.socket]) -> AsyncIterator[None]:
    """Serve applications on bound sockets in this loop."""
    servers = [
        (_Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", ws="none")), listener)
        for app, listener in apps
    ]
    tasks = [asyncio.create_task(server.serve(sockets=[listener])) for server, listener in servers]
    try:
        while not all(server.started for server, _ in servers):
            for task in tasks:
                if task.done():
                    await task
            await asyncio.sleep(0.005)
        yield
    finally:
        for server, _ in servers:
            server.end.set()
        await asyncio.gather(*tasks)


def bound() -> socket.socket:
    """Return a socket on a free port of the loopback."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", 0))
    return listener


def address(listener: socket.socket) -> str:
    """Return the HTTP address of a bound socket."""
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


class ServedNeighbours:
    """Identity, images and networks with their first users; their URLs answer while they are served."""

    def __init__(
        self,
        directory: Path,
        clock: Clock,
        *,
        space: Callable[[Path], Space] = shutil.disk_usage,
        database: Database | None = None,
        **images_settings: Any,
    ) -> None:
        """`space` says how large the disk is that images are on; `database`: where all is kept, else a new file."""
        self.refused: list[str] = []
        """The limits of the image store that were met."""
        self.clock = clock
        self.identity_listener, self.images_listener, self.networks_listener = bound(), bound(), bound()
        self.identity_url = address(self.identity_listener)
        self.images_url = address(self.images_listener)
        self.networks_url = address(self.networks_listener)
        self.database = database or _in_file(directory / "api.sqlite")
        settings = IdentitySettings(
            key_file=directory / "token-keys",
            public_url=f"{self.identity_url}/v3",
            catalogue=standard_catalogue("http://127.0.0.1:8774/v2.1", f"{self.identity_url}/v3", self.images_url),
            scrypt_cost=QUICK_SCRYPT,
        )
        self.identity = StandaloneIdentity(settings, self.database, clock)
        self.images = StandaloneImages(
            ImagesSettings(directory=directory / "images", identity_url=f"{self.identity_url}/v3", **images_settings),
            self.database,
            clock,
            space,
            refused=self.refused.append,
        )
        self.first = Bootstrapped()

    async def open(self) -> None:
        """Make the first users."""
        self.first = await ensure_bootstrap(self.database, self.identity.passwords, self.clock, chosen=PASSWORDS)

    async def close(self) -> None:
        """Give everything back."""
        self.identity.close()
        await self.database.close()
        self.identity_listener.close()
        self.images_listener.close()
        self.networks_listener.close()

    @contextlib.asynccontextmanager
    async def served(self) -> AsyncIterator[None]:
        """Answer HTTP on all addresses."""
        identity = identity_app(self.identity)
        images = images_app(self.images, self.identity)
        networks = networks_app(self.networks)
        async with serving(
            (identity, self.identity_listener), (images, self.images_listener), (networks, self.networks_listener)
        ):
            yield

    def identity_client(self) -> httpx.AsyncClient:
        """Return a client of the identity service without a socket between."""
        return _client(identity_app(self.identity), self.identity_url)

    @property
    def networks(self) -> NetworksApi:
        """The network service, over the same database."""
        settings = NetworksSettings(identity_url=f"{self.identity_url}/v3")
        return NetworksApi(self.database, self.clock, self.identity, settings)

    def networks_client(self) -> httpx.AsyncClient:
        """Return a client of the network service without a socket between."""
        return _client(networks_app(self.networks), "http://networks")

    def images_client(self) -> httpx.AsyncClient:
        """Return a client of the image service without a socket between."""
        return _client(images_app(self.images, self.identity), self.images_url)


@contextlib.asynccontextmanager
async def neighbours(directory: Path, clock: Clock, **images_settings: Any) -> AsyncIterator[ServedNeighbours]:
    """Open both services on a directory."""
    opened = ServedNeighbours(directory, clock, **images_settings)
    try:
        await opened.open()
        yield opened
    finally:
        await opened.close()


def sign_in_body(user: str, project: str | None, password: str | None = None) -> dict[str, Any]:
    """Return the body of `POST /v3/auth/tokens` for a password."""
    domain = {"id": "default"}
    who = {"name": user, "domain": domain, "password": PASSWORDS.get(user) if password is None else password}
    auth: dict[str, Any] = {"identity": {"methods": ["password"], "password": {"user": who}}}
    auth["scope"] = {"project": {"name": project, "domain": domain}} if project else "unscoped"
    return {"auth": auth}


async def token(client: httpx.AsyncClient, user: str, project: str | None) -> str:
    """Sign in over a client of the identity service."""
    response = await client.post("/v3/auth/tokens", json=sign_in_body(user, project))
    assert response.status_code == 201, response.text
    return str(response.headers["X-Subject-Token"])


def _in_file(path: Path) -> Database:
    lay_out({"api": path})
    return Database(path, readers=2, busy_timeout=0.2)


def _client(app: ASGIApp, url: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=url)
