"""What `synchronizer.url` may say for memcached."""

from __future__ import annotations

import pytest

from skep.config.sections import SynchronizerSettings
from skep.domain.errors import Misconfigured
from skep.synchronizer.memcached import MemcachedBackend
from skep.synchronizer.registry import make_backend


@pytest.mark.parametrize(
    "url", ["memcached://127.0.0.1:11300", "memcached://cache.example", "memcached://[::1]:11211/"]
)
def test_a_server_is_named_by_host_and_port(url: str) -> None:
    assert isinstance(make_backend(SynchronizerSettings(backend="memcached", url=url)), MemcachedBackend)


@pytest.mark.parametrize(
    "url",
    ["", "127.0.0.1:11211", "nats://h:1", "memcached://", "memcached://h:x", "memcached://u:p@h:1", "memcached://h/a"],
)
def test_anything_else_is_refused(url: str) -> None:
    with pytest.raises(Misconfigured, match="memcached://HOST:PORT"):
        make_backend(SynchronizerSettings(backend="memcached", url=url))
