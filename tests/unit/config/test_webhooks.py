"""Addresses of webhooks: what can never be sent to is refused with the settings."""

from __future__ import annotations

import pytest

from skep.config.events import WebhookSettings

SECRET = "sixteen characters"


@pytest.mark.parametrize(
    "url",
    [
        "http://hooks.example.org/skep",
        "https://hooks.example.org:65535/skep?of=one",
        "http://localhost:8080",
        "http://127.0.0.1:1/",
        "http://[::1]:80/x",
        "http://hook_1.example.org./",
        "http://xn--strae-oqa.example.org/",
        "http://stra\u00dfe.example.org/",
    ],
)
def test_addresses_that_can_be(url: str) -> None:
    assert WebhookSettings(name="one", url=url, secret=SECRET).url == url


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("ftp://a/", "http://HOST"),
        ("http:///x", "http://HOST"),
        ("http://me@a/", "without a user"),
        ("http://a:0/", "a port from 1 to 65535"),
        ("http://a:99999/", "a port from 1 to 65535"),
        ("http://a:b/", "a port from 1 to 65535"),
        ("http://a b/", "no spaces"),
        ("http://a/x y", "no spaces"),
        ("http://a/\n", "no spaces"),
        ("http://a/#there", "no fragment"),
        ("http://[::1/x", r"an IPv6 address as HOST within \[ and \]"),
        ("http://..../", "the name of a host"),
        ("http://a..b/", "the name of a host"),
        ("http://xn--/", "the name of a host"),
        ("http://-a/", "the name of a host"),
        (f"http://{'a' * 64}/", "the name of a host"),
    ],
)
def test_addresses_that_cannot_be(url: str, expected: str) -> None:
    with pytest.raises(ValueError, match=f"^url: expected .*{expected}.*, got `"):
        WebhookSettings(name="one", url=url, secret=SECRET)
