"""How agents get the bytes of images: from the store of their own process, by tickets, or by a user of their own."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import anyio
import anyio.lowlevel
import httpx

from skep.compute.image_cache import ImageCache
from skep.compute.image_transfers import ByRequest, ByTicket, HostStore, HostTransfers, StoredByRequest, StoredByTicket
from skep.compute.snapshots import Snapshots
from skep.config.authorities import authorities
from skep.config.compute import HostImagesSettings
from skep.config.sections import Config
from skep.domain.clock import Clock
from skep.domain.errors import Misconfigured
from skep.neighbours.answers import new_client
from skep.neighbours.images.base import ImageExchange
from skep.neighbours.images.glance import GlanceImages
from skep.neighbours.images.tickets import TicketedImages
from skep.neighbours.service_session import ServiceSession
from skep.processes.keystone import credentials_of

MIB = 1 << 20
CA_FILE = "compute.images.ca_file"
"""The setting, for whoever reads that its file cannot be used."""


class Disk(NamedTuple):
    """How full a disk is, in bytes."""

    total: int
    free: int
    """Without what is owed to guests: negative where that is more than there is."""


class HostImages:
    """The images of the hosts of one process.

    `cache` is None where they get none, `snapshots` where they may store none.
    """

    def __init__(self, config: Config, directory: Path, clock: Clock, embedded: ImageExchange | None = None) -> None:
        """`directory` holds the files of images, and is of this process alone; beside it is one for snapshots.

        Raises Misconfigured when the file of the CA, or a directory, cannot be used.
        """
        section = config.compute.images
        self.directory = directory
        self._owed: list[Callable[[Path], int]] = []
        self._http: httpx.AsyncClient | None = None
        self.cache: ImageCache | None = None
        self.snapshots: Snapshots | None = None
        if embedded is not None and not section.auth_url:
            transfers: HostTransfers = ByRequest(embedded)
            store: HostStore | None = StoredByRequest(embedded)
        elif section.by_ticket:
            self._http = new_client(authorities(section.ca_file, CA_FILE))
            by_ticket = TicketedImages(self._http, timeout=section.timeout, endpoint=section.endpoint)
            transfers, store = ByTicket(by_ticket), StoredByTicket(by_ticket)
        elif section.auth_url:
            self._http = new_client(authorities(section.ca_file, CA_FILE))
            by_user = _of_a_user(section, self._http, clock)
            transfers, store = ByRequest(by_user), StoredByRequest(by_user) if section.store else None
        else:
            return
        self.cache = ImageCache(
            directory,
            transfers,
            largest=section.largest_mib * MIB,
            kept=section.cache_mib * MIB,
            free=config.images.free_mib * MIB,
            limit=config.compute.driver_limits.prepare,
            disk=self._usage,
        )
        if store is not None:
            self.snapshots = _snapshots(config, directory.with_name("snapshots"), store)

    def owe(self, owed: Callable[[Path], int]) -> None:
        """Have images leave free what a host owes to its guests: the bytes of the disk of a directory."""
        self._owed.append(owed)

    async def load(self) -> None:
        """Load what transfers need, so that the first build of the host does not wait for it.

        httpx loads the greater part of itself with its first request: a tenth of a second of a processor.
        """
        if self._http is not None:
            await anyio.lowlevel.checkpoint()

    def _usage(self, directory: Path) -> Disk:
        found = shutil.disk_usage(directory)
        return Disk(total=found.total, free=found.free - sum(owed(directory) for owed in self._owed))

    async def close(self) -> None:
        """End transfers and connections. The files stay."""
        if self.cache is not None:
            await self.cache.close()
        if self._http is not None:
            await self._http.aclose()


def _snapshots(config: Config, directory: Path, store: HostStore) -> Snapshots:
    section = config.compute
    try:
        return Snapshots(
            directory, store, largest=section.images.largest_mib * MIB, limit=section.driver_limits.snapshot
        )
    except OSError as error:
        raise Misconfigured(f"the directory {directory} cannot be used: {error.strerror}") from error


def _of_a_user(section: HostImagesSettings, http: httpx.AsyncClient, clock: Clock) -> GlanceImages:
    return GlanceImages(ServiceSession(credentials_of(section), http, clock), section.endpoint)
