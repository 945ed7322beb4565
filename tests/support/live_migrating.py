"""A server that migrates live, as an admin asks for it and looks at it."""

from __future__ import annotations

from typing import Any

from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import ComputeSession

NEWEST = "2.104"
LIVE = {"os-migrateLive": {"host": None, "block_migration": "auto"}}


class LiveMigrating:
    """One server of a cloud."""

    admin: ComputeSession
    uuid: str

    async def server(self) -> Any:
        """Return the server as admins see it."""
        return (await self.admin.ask("GET", f"/servers/{self.uuid}", version=NEWEST)).json()["server"]

    async def host(self) -> str:
        """Return where it is."""
        return str((await self.server())["OS-EXT-SRV-ATTR:host"])

    async def begin(self) -> None:
        """Ask for a live migration."""
        answer = await self.admin.ask("POST", f"/servers/{self.uuid}/action", LIVE, version=NEWEST)
        assert answer.status_code == 202, answer.text

    async def migration(self) -> Any:
        """Return the latest migration as admins see it."""
        answer = await self.admin.ask("GET", f"/os-migrations?instance_uuid={self.uuid}", version=NEWEST)
        return max(answer.json()["migrations"], key=lambda one: one["id"])

    async def copying(self) -> str:
        """Wait until the guest is copied; return to which host."""

        async def is_copied() -> Any:
            answer = await self.admin.ask("GET", f"/servers/{self.uuid}/migrations", version=NEWEST)
            copied = (one for one in answer.json()["migrations"] if one["memory_total_bytes"] is not None)
            return next(copied, None)

        found = await eventually(is_copied, "the guest is copied")
        return str(found["dest_compute"])

    async def end(self, method: str, path: str = "", body: Any = None) -> None:
        """Have the copying end as an admin wishes."""
        number = (await self.migration())["id"]
        at = f"/servers/{self.uuid}/migrations/{number}{path}"
        answer = await self.admin.ask(method, at, body, version=NEWEST)
        assert answer.status_code == 202, answer.text

    async def force(self) -> None:
        """Have the copying end with the guest on its target."""
        await self.end("POST", "/action", {"force_complete": None})

    async def ends_as(self, *statuses: str) -> None:
        """Wait until the migration is over, and the server goes on."""

        async def over() -> bool:
            server = await self.server()
            calm = (server["status"], server["OS-EXT-STS:task_state"]) == ("ACTIVE", None)
            return calm and (await self.migration())["status"] in statuses

        await eventually(over, f"the migration is {statuses}")
