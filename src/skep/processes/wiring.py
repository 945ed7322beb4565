"""Which adapter carries messages and host states: read from the configuration, here and nowhere else."""

from __future__ import annotations

from typing import Protocol
from urllib.parse import urlsplit

from msgspec.structs import replace

from skep.config.nats_security import NatsSecurity
from skep.config.sections import Config, SynchronizerSettings, TransportSettings
from skep.domain.errors import Misconfigured
from skep.synchronizer.base import Backend
from skep.synchronizer.registry import make_backend
from skep.telemetry.metrics import Metrics
from skep.transport.base import Transport
from skep.transport.memory import MemoryTransport
from skep.transport.refusals import Kind, Reason

MEMORY = "memory"


class ProcessTransport(Transport, Protocol):
    """A transport as a process owns it: opened before the first message, closed after the last."""

    async def open(self) -> None:
        """Connect. Raises Unreachable when nobody answers, Misconfigured when it never will work."""

    async def close(self) -> None:
        """Disconnect."""


def transport_of(config: Config, metrics: Metrics, name: str) -> ProcessTransport:
    """Return the configured transport, not opened yet; `name` is what a server's monitoring calls this process."""

    def on_refused(kind: Kind, reason: Reason) -> None:
        metrics.transport_refused.labels(kind, reason).inc()

    if config.transport.kind == MEMORY:
        return MemoryTransport(config.transport, on_refused=on_refused)
    from skep.transport.nats import NatsTransport

    transport = NatsTransport(config.transport, name=name, on_refused=on_refused)
    metrics.transport_connected.set_function(lambda: float(transport.connected))
    return transport


def backend_of(config: Config) -> Backend:
    """Return the configured backend of the synchronizer, not opened yet.

    Raises Misconfigured when there is none of this name, when it does not take its settings, or when its address is
    that of a database of the installation.
    """
    backend = make_backend(_with_files(config))
    if config.synchronizer.backend == "sql" and config.synchronizer.url:
        # Imported here: a scheduler over another backend loads nothing of databases.
        from skep.processes.own_databases import refuse_own_databases

        refuse_own_databases(config)
    return backend


def _with_files(config: Config) -> SynchronizerSettings:
    """Return the synchronizer's settings: on the transport's NATS servers it is known by the same files, if by none."""
    mine, transport = config.synchronizer, config.transport
    names = NatsSecurity.__struct_fields__
    if mine.backend != "nats" or any(getattr(mine, name) for name in names):
        return mine
    if transport.kind == MEMORY or _places(mine.url) != _places(transport.url):
        return mine
    return replace(mine, **{name: getattr(transport, name) for name in names})


def _places(url: str) -> set[str]:
    """Return where the servers of an address are, without users and passwords."""
    return {urlsplit(one.strip()).netloc.rpartition("@")[2] for one in url.split(",")}


def transport_in_cell(config: Config, metrics: Metrics, name: str, cell: str) -> ProcessTransport:
    """Return the transport of a cell, not opened yet: its own servers', or the one of all."""
    own = next((one.transport_url for one in config.cells if one.name == cell), "")
    return transport_at(config, own, metrics, name) if own else transport_of(config, metrics, name)


def transport_at(config: Config, urls: str, metrics: Metrics, name: str) -> ProcessTransport:
    """Return a transport over a cell's own NATS servers, not opened yet."""
    return transport_of(replace(config, transport=_settings_at(config.transport, urls)), metrics, name)


def _settings_at(shared: TransportSettings, urls: str) -> TransportSettings:
    """Return the transport's settings for a cell's own servers.

    The NATS client would send what stands in a file rather than a user in an address: a file of the shared servers is
    no sign-in to other servers whose addresses name a user.
    """
    if "@" not in urls or _places(urls) & _places(shared.url):
        return replace(shared, url=urls)
    return replace(shared, url=urls, credentials_file="", sign_in_file="")


def check_apart(config: Config) -> None:
    """Refuse a role in a process of its own where messages stay in the process. Raises Misconfigured."""
    if config.transport.kind == MEMORY:
        raise Misconfigured(
            "transport.kind is `memory`, which stays inside one process, and roles in processes of their own could "
            "not exchange messages: set it to `nats`"
        )


def check_shared(config: Config) -> None:
    """Refuse a scheduler in a process of its own where nothing would reach it.

    Raises Misconfigured naming the setting.
    """
    why = "and schedulers in processes of their own would neither be asked nor see what the others claim"
    if config.transport.kind == MEMORY:
        raise Misconfigured(f"transport.kind is `memory`, which stays inside one process, {why}: set it to `nats`")
    if config.synchronizer.backend == MEMORY:
        raise Misconfigured(
            f"synchronizer.backend is `memory`, which stays inside one process, {why}: "
            "set it to `nats`, `sql` or `memcached`"
        )
