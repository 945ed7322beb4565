"""Records in a memcached: a cache that lists nothing, keeps no order, evicts, and forgets all when it ends.

    <name>:root              which epoch; shards of the index; whose logs are followed
    <name>:<epoch>:v<digest>   a value: generation, key, body; written by compare-and-swap only
    <name>:<epoch>:i<n>        a part of the index: digests of all keys, appended to before a value is first written
    <name>:<epoch>:l<w>.<n>    entry n of the log of writer w: which values are about to change
    <name>:<epoch>:h<w>        head of that log: up to which entry all is done

`connection.py` and `commands.py` speak memcached's protocol, `items.py` is what the items are made of. `lives.py` knows
epochs; `writing.py`, `reading.py` and `trimming.py` are the contract's three sides; `healing.py` tells what a writer
that was cut off has not told; `losses.py` and `capacity.py` judge what the server lost, and whether it is large enough.
Why all this: docs/decisions/0302-memcached-logs-of-writers.md.
"""

from __future__ import annotations

from functools import partial
from urllib.parse import urlsplit

from skep.config.sections import SynchronizerSettings
from skep.domain.errors import Misconfigured
from skep.synchronizer.memcached.backend import MemcachedBackend
from skep.synchronizer.memcached.connection import MemcachedConnection

DEFAULT_PORT = 11211

__all__ = ["MemcachedBackend", "make"]


def make(settings: SynchronizerSettings) -> MemcachedBackend:
    """Return a handle on the server of `settings.url`, not opened yet.

    Raises Misconfigured when the URL is no `memcached://HOST:PORT`.
    """
    try:
        url = urlsplit(settings.url)
        host, port = url.hostname, url.port or DEFAULT_PORT
    except ValueError:
        host, port = None, 0
    else:
        host = host if url.scheme == "memcached" and url.path in {"", "/"} and url.username is None else None
    if not host:
        raise Misconfigured("synchronizer.url: expected memcached://HOST:PORT")
    return MemcachedBackend(
        connect=partial(MemcachedConnection.open, host, port),
        name=settings.name,
        expected_hosts=settings.expected_hosts,
    )
