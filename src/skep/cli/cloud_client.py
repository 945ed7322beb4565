"""A client of the cloud that runs in this very process, for `skep up` and `skep demo`: small, asynchronous."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec

from skep.cli.failures import NEW_PASSWORD
from skep.domain.decoding import json_decoder
from skep.domain.errors import SkepError, Unavailable

POLL_SECONDS = 0.2
MICROVERSION = "2.96"


class _Auth(msgspec.Struct):
    auth_url: str
    username: str
    project_name: str
    password: str = ""


class _Cloud(msgspec.Struct):
    auth: _Auth


class _Clouds(msgspec.Struct):
    clouds: dict[str, _Cloud]


class _Endpoint(msgspec.Struct):
    url: str


class _Service(msgspec.Struct):
    type: str
    endpoints: tuple[_Endpoint, ...] = ()


class _Token(msgspec.Struct):
    catalog: tuple[_Service, ...] = ()


class _SignedIn(msgspec.Struct):
    token: _Token


class RequestFailed(SkepError):
    """An API answered with an error."""


class CloudClient:
    """Asks the APIs of a cloud at known addresses, as the admin of its clouds.yaml."""

    def __init__(self, api_url: str, clouds_yaml: Path, images_url: str = "") -> None:
        parts = urlsplit(api_url)
        self.compute_url = api_url.rstrip("/")
        self.origin = f"{parts.scheme}://{parts.netloc}"
        self.images_url = images_url.rstrip("/")
        self._clouds_yaml = clouds_yaml
        self._networks_url = ""
        """As the catalogue says it; empty: there is no network service."""
        self._http = httpx.AsyncClient(timeout=30.0, trust_env=False)

    async def __aenter__(self) -> CloudClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def sign_in(self) -> None:
        """Get a token; all later requests bear it.

        Raises RequestFailed when the file is not as `skep up` writes it, or its password is not right any more.
        """
        try:
            auth = json_decoder(_Clouds).decode(self._clouds_yaml.read_bytes()).clouds["skep"].auth
        except (OSError, msgspec.DecodeError, KeyError) as error:
            raise RequestFailed(f"{self._clouds_yaml} was rewritten: {error}") from error
        if not auth.password:
            raise RequestFailed(f"{self._clouds_yaml} holds no password of {auth.username}; {NEW_PASSWORD}")
        domain = {"name": "Default"}
        body = {
            "auth": {
                "identity": {
                    "methods": ["password"],
                    "password": {"user": {"name": auth.username, "password": auth.password, "domain": domain}},
                },
                "scope": {"project": {"name": auth.project_name, "domain": domain}},
            }
        }
        response = await self._http.post(f"{auth.auth_url}/auth/tokens", json=body)
        if response.status_code == 401:
            raise RequestFailed(f"the password of {auth.username} in {self._clouds_yaml} is wrong; {NEW_PASSWORD}")
        if response.status_code != 201:
            raise RequestFailed(f"cannot sign in as {auth.username}: {response.status_code}")
        self._http.headers["X-Auth-Token"] = response.headers["X-Subject-Token"]
        catalog = json_decoder(_SignedIn).decode(response.content).token.catalog
        networks = (endpoint.url for one in catalog if one.type == "network" for endpoint in one.endpoints)
        self._networks_url = next(networks, "")

    async def admin(self, method: str, path: str, body: Any = None) -> Any:
        """Ask the admin API. Raises RequestFailed unless it answers well."""
        return await self._ask(method, f"{self.origin}/admin/v1{path}", body)

    async def compute(self, method: str, path: str, body: Any = None, *, version: str = MICROVERSION) -> Any:
        """Ask the compute API; None for an empty answer. Raises RequestFailed unless it answers well."""
        return await self._ask(method, f"{self.compute_url}{path}", body, version)

    async def network(self, method: str, path: str, body: Any = None) -> Any:
        """Ask the network service. Raises RequestFailed unless it answers well."""
        return await self._ask(method, f"{self._networks_url}/v2.0{path}", body)

    async def image(self, name: str) -> str:
        """Return the id of the image with this name. Raises RequestFailed when there is none."""
        found = (await self._ask("GET", f"{self.images_url}/v2/images?name={name}", None))["images"]
        if not found:
            raise RequestFailed(f"there is no image {name}")
        return str(found[0]["id"])

    async def reasons(self) -> list[str]:
        """Return why the cloud, or a cell of it, is not ready; empty when all are."""
        body = (await self._http.get(f"{self.origin}/readyz")).json()
        return [str(reason) for reason in (*body["reasons"], *body.get("warnings", ()))]

    async def until_ready(self, seconds: float) -> None:
        """Wait until the cloud is ready. Raises Unavailable naming what is missing after so many seconds."""

        async def look() -> bool:
            return not await self.reasons()

        if not await until(look, seconds):
            raise Unavailable(f"the cloud is not ready: {'; '.join(await self.reasons())}")

    async def _ask(self, method: str, url: str, body: Any, version: str = MICROVERSION) -> Any:
        headers = {"OpenStack-API-Version": f"compute {version}"}
        more: dict[str, Any] = {} if body is None else {"json": body}
        response = await self._http.request(method, url, headers=headers, **more)
        if response.status_code >= 400:
            raise RequestFailed(f"{method} {url}: {response.status_code} {response.text[:300]}")
        return response.json() if response.content else None


async def until(done: Callable[[], Awaitable[bool]], seconds: float) -> bool:
    """Ask again and again, for at most so many seconds; tell whether it came true."""
    deadline = time.monotonic() + seconds
    while not await done():
        if time.monotonic() >= deadline:
            return False
        await asyncio.sleep(POLL_SECONDS)
    return True
