"""The networks of fake hosts, on paper: a file has what the host was told of them last."""

from __future__ import annotations

import abc
from pathlib import Path

import msgspec

from skep.domain.host_networks import HostNetworks

NETWORKS_FILE = "networks.json"
"""The `HostNetworks` that the driver was told last."""


class FakeNetworks(abc.ABC):
    """The capability `networks` of fake hosts."""

    _directory: Path

    @property
    @abc.abstractmethod
    def wants_networks(self) -> bool:
        """Whether it is told of networks."""

    @abc.abstractmethod
    def tunnel_address(self) -> str | None:
        """Return where other hosts would reach it."""

    @abc.abstractmethod
    async def _fail(self, operation: str, server: str = "") -> None:
        """Raise DriverError when a rule says so."""

    async def networks(self, wanted: HostNetworks) -> None:
        """Write down what it is told."""
        await self._fail("networks")
        (self._directory / NETWORKS_FILE).write_bytes(msgspec.json.encode(wanted))
