"""Moved to `skep.processes.servers.memcached`."""

from skep.processes.servers.memcached import MemcachedServer

__all__ = ["MemcachedServer"]
