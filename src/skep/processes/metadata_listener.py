"""The port of the metadata service."""

from __future__ import annotations

from collections.abc import Mapping

from skep.database.engine import Database
from skep.domain.ids import CellUuid
from skep.metadata.app import MetadataApi
from skep.metadata.servers import Servers
from skep.processes.listener import Listener
from skep.processes.process import Process
from skep.processes.vendor_data import vendor_data, vendor_targets
from skep.standalone.binding import check_bind


class MetadataListener:
    """Binds the port when it is made; then `start`, once the databases are open."""

    def __init__(self, process: Process) -> None:
        """Raises Misconfigured when the port is taken, or what all servers are told cannot be read."""
        config = process.config
        self._process = process
        self._vendor_data = vendor_data(config.metadata)
        self._vendors = vendor_targets(config.metadata)
        check_bind(config.api.bind_host, tls=False)
        self._listener = Listener(
            config.api.bind_host, config.metadata.port, "metadata.port", limits=config.http, metrics=process.metrics
        )

    @property
    def url(self) -> str:
        """Where proxies ask."""
        return self._listener.url

    async def start(self, api: Database, cells: Mapping[CellUuid, Database]) -> None:
        """Answer from now on."""
        section = self._process.config.metadata
        servers = Servers(
            database=api,
            cells=cells,
            clock=self._process.clock,
            remembered_seconds=section.metadata_cache_expiration,
            dhcp_domain=section.dhcp_domain,
            vendor_data=self._vendor_data,
            vendors=self._vendors,
        )
        await self._listener.start(MetadataApi(servers, section.secrets))

    async def stop(self) -> None:
        """Take no more requests, finish those under way."""
        await self._listener.stop()
        if self._vendors is not None:
            await self._vendors.close()
