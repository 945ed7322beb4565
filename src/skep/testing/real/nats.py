"""Moved to `skep.processes.servers.nats`."""

from skep.processes.servers.nats import NatsServer

__all__ = ["NatsServer"]
