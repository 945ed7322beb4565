"""A consumer of Nova's notifications, as others write it: a listener of oslo.messaging."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from oslo_config import cfg
from oslo_service import backend

from skep.contracts.eventually import eventually

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    backend.init_backend(backend.BackendType.THREADING)
    import oslo_messaging


@dataclass(frozen=True)
class Heard:
    """One notification, as an endpoint is handed it."""

    priority: str
    context: dict[str, Any]
    publisher_id: str
    event_type: str
    payload: dict[str, Any]
    metadata: dict[str, Any]

    @property
    def data(self) -> dict[str, Any]:
        """What a versioned payload says."""
        found: dict[str, Any] = self.payload["nova_object.data"]
        return found

    @property
    def server(self) -> str | None:
        """The server that it tells of, in either form."""
        said = self.payload.get("nova_object.data", self.payload)
        uuid: str | None = said.get("uuid") or said.get("instance_uuid") or said.get("instance_id")
        return uuid


class Endpoint:
    """Keeps what it is handed, of the priorities that are sent."""

    def __init__(self) -> None:
        self.heard: list[Heard] = []

    def info(self, *said: Any) -> None:
        self._keep("INFO", *said)

    def error(self, *said: Any) -> None:
        self._keep("ERROR", *said)

    def _keep(
        self, priority: str, ctxt: Any, publisher_id: str, event_type: str, payload: Any, metadata: dict[str, Any]
    ) -> None:
        self.heard.append(Heard(priority, dict(ctxt), publisher_id, event_type, payload, metadata))

    def of(self, server: str) -> list[Heard]:
        """Return what was told of a server, in order."""
        return [one for one in self.heard if one.server == server]

    async def hears(self, server: str, last: str, seconds: float = 30.0) -> list[Heard]:
        """Wait until an event type was told of a server, and return all that was told of it."""

        async def probe() -> list[Heard]:
            told = self.of(server)
            return told if any(one.event_type == last for one in told) else []

        return await eventually(probe, f"{last} of {server} is heard", seconds=seconds)


@contextmanager
def listening(url: str, *topics: str) -> Iterator[Endpoint]:
    """Listen to topics of the exchange `nova` for the length of a block."""
    endpoint = Endpoint()
    conf = cfg.ConfigOpts()
    conf([], project="listener", default_config_files=[], default_config_dirs=[])
    transport = oslo_messaging.get_notification_transport(conf, url)
    targets = [oslo_messaging.Target(exchange="nova", topic=topic) for topic in topics]
    listener = _listener(transport, targets, endpoint)
    listener.start()
    try:
        yield endpoint
    finally:
        listener.stop()
        listener.wait()
        transport.cleanup()


def _listener(transport: Any, targets: Sequence[Any], endpoint: Endpoint) -> Any:
    return oslo_messaging.get_notification_listener(transport, targets, [endpoint], executor="threading")
