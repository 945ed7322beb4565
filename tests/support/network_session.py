"""Requests to the network service, as a user of the project `demo` or as the admin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx

PATHS = {
    "network": "networks",
    "subnet": "subnets",
    "port": "ports",
    "security_group": "security-groups",
    "security_group_rule": "security-group-rules",
    "router": "routers",
    "floatingip": "floatingips",
}


class NetworkSession:
    """A client, and the tokens of those who ask."""

    def __init__(self, client: httpx.AsyncClient, tokens: Mapping[str, str]) -> None:
        self.client = client
        self._tokens = tokens

    async def ask(self, method: str, path: str, body: Any = None, *, by: str = "demo") -> httpx.Response:
        """Send a request; the path is below `/v2.0`."""
        sent = {} if body is None else {"json": body}
        return await self.client.request(method, f"/v2.0{path}", headers={"X-Auth-Token": self._tokens[by]}, **sent)

    async def make(self, member: str, *, by: str = "demo", **fields: Any) -> dict[str, Any]:
        """Make something and return it."""
        answer = await self.ask("POST", f"/{PATHS[member]}", {member: fields}, by=by)
        assert answer.status_code == 201, answer.text
        made: dict[str, Any] = answer.json()[member]
        return made

    async def show(self, member: str, resource_id: str, *, by: str = "demo") -> dict[str, Any]:
        """Return what is shown of something."""
        answer = await self.ask("GET", f"/{PATHS[member]}/{resource_id}", by=by)
        assert answer.status_code == 200, answer.text
        shown: dict[str, Any] = answer.json()[member]
        return shown

    async def change(self, member: str, resource_id: str, *, by: str = "demo", **fields: Any) -> dict[str, Any]:
        """Change something and return it."""
        answer = await self.ask("PUT", f"/{PATHS[member]}/{resource_id}", {member: fields}, by=by)
        assert answer.status_code == 200, answer.text
        after: dict[str, Any] = answer.json()[member]
        return after

    async def delete(self, member: str, resource_id: str, *, by: str = "demo") -> None:
        """Delete something."""
        answer = await self.ask("DELETE", f"/{PATHS[member]}/{resource_id}", by=by)
        assert answer.status_code == 204, answer.text

    async def listed(self, member: str, query: str = "", *, by: str = "demo") -> list[dict[str, Any]]:
        """Return a list."""
        answer = await self.ask("GET", f"/{PATHS[member]}{query}", by=by)
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()[PATHS[member].replace("-", "_")]
        return found

    async def refused(self, method: str, path: str, body: Any = None, *, by: str = "demo") -> tuple[int, str, str]:
        """Send a request that has to be refused; return status, type and message."""
        answer = await self.ask(method, path, body, by=by)
        assert 400 <= answer.status_code < 500, answer.text
        error = answer.json()["NeutronError"]
        assert error["detail"] == ""
        return answer.status_code, error["type"], error["message"]
