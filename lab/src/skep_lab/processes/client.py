"""A client of a cloud: signs in and asks; where several API processes serve, it goes to another when one is away."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Sequence
from pathlib import Path

import httpx

from skep.contracts.eventually import PATIENCE

MICROVERSION = "2.96"
READY_SECONDS = 2.0
"""Who has not said in this time that he is ready gets a request only when nobody has."""


class ProcessCloudClient:
    """Asks as the admin whom the first start made. Used by several threads at once."""

    def __init__(self, clouds_yaml: Path, api_urls: Sequence[str], identity_url: str, images_url: str) -> None:
        """Take the addresses of the API processes with their version, e.g. `http://127.0.0.1:8774/v2.1`."""
        self.api_urls = tuple(api_urls)
        self.headers: dict[str, str] = {}
        self._clouds_yaml = clouds_yaml
        self.identity_url, self.images_url = identity_url, images_url
        self._turns = itertools.count()
        self._lock = threading.Lock()
        # Nothing here is encrypted, so reading certificates for each client would only cost time. A connection for
        # each request: one that is kept may be closed by a server that stops just when the next request is sent.
        self._http = httpx.Client(
            timeout=PATIENCE, trust_env=False, verify=False, limits=httpx.Limits(max_keepalive_connections=0)
        )

    def sign_in(self) -> None:
        """Get a token. Raises httpx.HTTPError when the identity service does not give one."""
        auth = json.loads(self._clouds_yaml.read_text())["clouds"]["skep"]["auth"]
        domain = {"name": "Default"}
        proof = {"user": {"name": auth["username"], "password": auth["password"], "domain": domain}}
        scope = {"project": {"name": auth["project_name"], "domain": domain}}
        body = {"auth": {"identity": {"methods": ["password"], "password": proof}, "scope": scope}}
        given = self._http.post(f"{self.identity_url}/auth/tokens", json=body).raise_for_status()
        token = given.headers["X-Subject-Token"]
        self.headers = {"X-Auth-Token": token, "OpenStack-API-Version": f"compute {MICROVERSION}"}

    def find_image(self) -> str:
        """Return the id of the image `tiny`."""
        found = self._http.get(f"{self.images_url}/v2/images?name=tiny", headers=self.headers).raise_for_status()
        return str(found.json()["images"][0]["id"])

    def ask(self, method: str, path: str, body: object = None) -> httpx.Response:
        """Send one request to the compute API (`/servers`) or the admin API (`/admin/v1/...`), as a load balancer does.

        The API processes take turns; one that is not ready (`/readyz`), or takes no connection, is passed over while
        there is another. Raises httpx.TransportError when none takes the request, or no answer comes.
        """
        with self._lock:
            first = next(self._turns) % len(self.api_urls)
        turn = [*self.api_urls[first:], *self.api_urls[:first]]
        ready = [url for url in turn if self._is_ready(url)] if len(turn) > 1 else []
        chosen = [*ready, *(url for url in turn if url not in ready)]
        for url in chosen:
            base = url.removesuffix("/v2.1") if path.startswith(("/admin/", "/readyz")) else url
            try:
                return self._http.request(method, f"{base}{path}", json=body, headers=self.headers)
            except httpx.ConnectError:
                if url == chosen[-1]:
                    raise
        raise AssertionError("a cloud has at least one API")

    def _is_ready(self, url: str) -> bool:
        try:
            return self._http.get(f"{url.removesuffix('/v2.1')}/readyz", timeout=READY_SECONDS).status_code == 200
        except httpx.TransportError:
            return False

    def close(self) -> None:
        """Disconnect."""
        self._http.close()
