"""The embedded network service with callers of two projects, asked without a socket between."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx

from skep.contracts.neighbours.served import ServedNeighbours, sign_in_body, token
from skep.standalone import openapi
from tests.support.documented import Documented

PASSWORD = "a password for tests"
USERS = (("reader", "demo", "reader"), ("colleague", "demo", "member"), ("stranger", "strangers", "member"))
"""Name, project, role; beside `admin` and `demo`, who are there."""


class AskedNetworks:
    """Asks as one caller or another. Each answer is judged by the document, each fault by its form."""

    def __init__(self, client: httpx.AsyncClient, tokens: dict[str, str], projects: dict[str, str]) -> None:
        self.client = client
        self.tokens = tokens
        self.projects = projects
        """Ids by name."""

    async def answer(self, method: str, path: str, body: Any = None, *, by: str = "demo", **sent: Any) -> Any:
        """Ask, and return the response whatever it is, but for an error of ours."""
        headers = {"X-Auth-Token": self.tokens[by], **sent.pop("headers", {})}
        if body is not None:
            sent["json"] = body
        response = await self.client.request(method, f"/v2.0/{path}", headers=headers, **sent)
        assert response.status_code < 500, (method, path, body, response.text)
        if response.status_code >= 400:
            fault = response.json()
            assert fault.keys() == {"NeutronError"}, fault
            assert fault["NeutronError"].keys() == {"type", "message", "detail"}, fault
            assert all(fault["NeutronError"][key] for key in ("type", "message")), fault
        return response

    async def ask(self, method: str, path: str, body: Any = None, **said: Any) -> Any:
        """Ask for what must succeed; return what the only key of the answer has, or the whole of it."""
        response = await self.answer(method, path, body, **said)
        assert response.status_code < 300, (method, path, body, response.text)
        shown = response.json() if response.content else {}
        return next(iter(shown.values())) if len(shown) == 1 else shown

    async def refused(self, status: int, method: str, path: str, body: Any = None, **said: Any) -> tuple[str, str]:
        """Ask for what must be refused; return the type and the message of the fault."""
        response = await self.answer(method, path, body, **said)
        assert response.status_code == status, (method, path, body, response.text)
        fault = response.json()["NeutronError"]
        return fault["type"], fault["message"]

    async def make(self, kind: str, *, by: str = "demo", **fields: Any) -> Any:
        """Make one of a kind (`security-group`) and return it."""
        return await self.ask("POST", f"{kind}s", {kind.replace("-", "_"): fields}, by=by)

    async def listed(self, path: str, **said: Any) -> list[Any]:
        """Return a list without its links."""
        response = await self.answer("GET", path, **said)
        assert response.status_code == 200, response.text
        key = path.partition("?")[0].replace("-", "_")
        found: list[Any] = response.json()[key]
        return found

    async def subnet(self, cidr: str = "10.0.0.0/24", *, by: str = "demo", **fields: Any) -> Any:
        """Make a network with one subnet, and return that."""
        network = await self.make("network", by=by)
        version = 6 if ":" in cidr else 4
        return await self.make("subnet", by=by, network_id=network["id"], cidr=cidr, ip_version=version, **fields)

    async def outside(self, cidr: str = "203.0.113.0/24", **fields: Any) -> Any:
        """Make an external network with one subnet, and return that."""
        network = await self.make("network", by="admin", **{"router:external": True})
        said = {"network_id": network["id"], "cidr": cidr, "ip_version": 4, **fields}
        return await self.make("subnet", by="admin", **said)


@contextlib.asynccontextmanager
async def asked_networks(cloud: ServedNeighbours) -> AsyncIterator[AskedNetworks]:
    """Sign the callers in."""
    async with cloud.identity_client() as identity, cloud.networks_client() as client:
        client.event_hooks = {"response": [Documented(openapi.networks()).judge]}
        tokens = {name: await token(identity, name, name) for name in ("admin", "demo")}
        headers = {"X-Auth-Token": tokens["admin"]}

        async def make(path: str, body: Any) -> str:
            made = await identity.post(f"/v3/{path}", json=body, headers=headers)
            assert made.status_code == 201, made.text
            return str(next(iter(made.json().values()))["id"])

        projects = dict(cloud.first.project_ids)
        projects["strangers"] = await make("projects", {"project": {"name": "strangers"}})
        listed = await identity.get("/v3/roles", headers=headers)
        roles = {one["name"]: one["id"] for one in listed.json()["roles"]}
        for name, project, role in USERS:
            user = await make("users", {"user": {"name": name, "password": PASSWORD}})
            path = f"/v3/projects/{projects[project]}/users/{user}/roles/{roles[role]}"
            assert (await identity.put(path, headers=headers)).status_code == 204
            signed = await identity.post("/v3/auth/tokens", json=sign_in_body(name, project, PASSWORD))
            tokens[name] = signed.headers["X-Subject-Token"]
        yield AskedNetworks(client, tokens, projects)
