"""Where a service that takes passwords may listen."""

from __future__ import annotations

import pytest

from skep.domain.errors import Misconfigured
from skep.standalone.binding import check_bind


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost"])
def test_loopback_needs_no_tls(host: str) -> None:
    check_bind(host, tls=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "", "cloud.example", "127.0.0.1.example"])
def test_anything_else_does(host: str) -> None:
    check_bind(host, tls=True)
    with pytest.raises(Misconfigured, match="TLS"):
        check_bind(host, tls=False)
