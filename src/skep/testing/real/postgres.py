"""Moved to `skep.processes.servers.postgres`."""

from skep.processes.servers.postgres import PostgresServer

__all__ = ["PostgresServer"]
