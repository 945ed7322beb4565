"""The hint `lifetime` over HTTP: whose host is chosen, what hosts tell of ends, also after a new start and a delete."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from skep.config.sections import Config
from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import ComputeSession, http_config, serving_cloud, signed_in
from skep.domain.clock import SECOND, parse_iso
from skep.processes.all_in_one import AllInOneCloud

DAY = 86_400
VERSION = "2.96"
HOSTS = 3


class User:
    """Creates servers, and looks where they are."""

    def __init__(self, cloud: AllInOneCloud, session: ComputeSession, image: str) -> None:
        self._admin_url = cloud.api_url.replace("/v2.1", "/admin/v1")
        self._session = session
        self._image = image

    async def create(self, *, host: str | None = None, count: int = 1, **hints: Any) -> tuple[int, str]:
        """Ask for servers; return the status and what was answered: the id of the first, or an error's text."""
        server = {"name": "one", "flavorRef": "1", "imageRef": self._image, "networks": "none", "min_count": count}
        if host is not None:
            server["availability_zone"] = f"nova:{host}"
        answer = await self._session.ask(
            "POST", "/servers", {"server": server, "os:scheduler_hints": hints}, version=VERSION
        )
        return answer.status_code, answer.json()["server"]["id"] if answer.status_code == 202 else answer.text

    async def built(self, *, host: str | None = None, count: int = 1, **hints: Any) -> list[dict[str, Any]]:
        """Create servers and wait until all of the project run; return them, the newest first."""
        status, text = await self.create(host=host, count=count, **hints)
        assert status == 202, text

        async def active() -> list[dict[str, Any]]:
            servers = await self.servers()
            return servers if all(server["status"] == "ACTIVE" for server in servers) else []

        return (await eventually(active, "all servers run"))[:count]

    async def servers(self) -> list[dict[str, Any]]:
        answer = await self._session.ask("GET", "/servers/detail", version=VERSION)
        found: list[dict[str, Any]] = answer.json()["servers"]
        return found

    async def delete_all(self) -> None:
        for server in await self.servers():
            await self._session.ask("DELETE", f"/servers/{server['id']}", version=VERSION)

    async def ends(self) -> dict[str, tuple[int, int | None]]:
        """Return how many servers each host counts, and when it expects the last of them to be gone.

        Only once each has told of all that is claimed.
        """

        async def settled() -> dict[str, tuple[int, int | None]]:
            answer = await self._session.client.get(
                f"{self._admin_url}/host-states", headers={"X-Auth-Token": self._session.token}
            )
            states = answer.json()["host_states"]
            if len(states) < HOSTS or any(state["claims"] for state in states):
                return {}
            usages = [state["usage"] for state in states]
            return {usage["host"]: (usage["instances"], usage["expected_end"]) for usage in usages}

        return await eventually(settled, "hosts have told of all servers")


@asynccontextmanager
async def user_of(config: Config) -> AsyncIterator[User]:
    async with serving_cloud(config, cells=1, hosts=HOSTS) as cloud, signed_in(cloud) as session:
        found = await session.client.get(f"{cloud.images_url}/v2/images", headers={"X-Auth-Token": session.token})
        yield User(cloud, session, found.json()["images"][0]["id"])


def end_of(server: dict[str, Any], seconds: int) -> int:
    """Return the second, as microseconds, in which a server's lifetime ends."""
    return parse_iso(server["created"]) + seconds * SECOND


async def test_servers_go_where_hosts_are_occupied_anyway(tmp_path: Path) -> None:
    config = http_config(tmp_path)
    async with user_of(config) as user:
        status, text = await user.create(lifetime="soon")
        assert (status, "lifetime. Value: soon. Expected: how many seconds" in text) == (400, True)
        for name in ("cell1-host1", "cell1-host2", "cell1-host3"):
            assert (await user.ends())[name] == (0, None)
        [short] = await user.built(host="cell1-host1", lifetime=3600)
        [long] = await user.built(host="cell1-host2", lifetime=str(DAY))
        ends = await user.ends()
        assert {name: count for name, (count, _) in ends.items()} == {
            "cell1-host1": 1,
            "cell1-host2": 1,
            "cell1-host3": 0,
        }
        for name, server, seconds in (("cell1-host1", short, 3600), ("cell1-host2", long, DAY)):
            assert 0 <= (ends[name][1] or 0) - end_of(server, seconds) < SECOND

        placed = await user.built(count=2, lifetime=7200)
        assert [server["OS-EXT-SRV-ATTR:host"] for server in placed] == ["cell1-host2"] * 2
        assert (await user.ends())["cell1-host2"] == (3, ends["cell1-host2"][1])

        [stays] = await user.built()
        assert stays["OS-EXT-SRV-ATTR:host"] == "cell1-host3", "without the hint the emptiest host is the best"
        before = await user.ends()
        assert before["cell1-host3"] == (1, None)

    async with user_of(config) as user:
        assert await user.ends() == before, "agents remember what they were told"
        [after] = await user.built(lifetime=DAY * 400)
        assert after["OS-EXT-SRV-ATTR:host"] == "cell1-host3", "a server without an end is there for ever"
        await user.delete_all()

        async def empty() -> bool:
            return set((await user.ends()).values()) == {(0, None)}

        await eventually(empty, "nothing is left")
