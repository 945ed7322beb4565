"""Requests to the compute API whose status is known before."""

from __future__ import annotations

from typing import Any, Protocol

from skep.contracts.http_cloud import ComputeSession


class Ask(Protocol):
    async def __call__(
        self, method: str, path: str, body: Any = None, *, status: int = 200, version: str = "2.1"
    ) -> Any: ...


def asker(session: ComputeSession) -> Ask:
    """Return what asks in a user's name, and gives the value of the answer's only key."""

    async def ask(method: str, path: str, body: Any = None, *, status: int = 200, version: str = "2.1") -> Any:
        answer = await session.ask(method, path, body, version=version)
        assert answer.status_code == status, (method, path, body, answer.status_code, answer.text)
        return next(iter(answer.json().values())) if answer.content else None

    return ask
