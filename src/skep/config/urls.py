"""Addresses with passwords in them, as they may be shown."""

from __future__ import annotations

import re

HIDDEN = "********"

_PASSWORD = re.compile(r"(?<=://)(?P<user>[^:/@]*):[^/]*@")
_PARAMETER = re.compile(r"(?P<name>[?&](?:ssl)?password)=[^&]*")
_TOKEN = re.compile(r"(?<=nats://)[^:/@,]+(?=@)|(?<=tls://)[^:/@,]+(?=@)")


def masked(url: str) -> str:
    """Return a URL, or several with commas between, without passwords, and without what NATS takes for a token."""
    without_token = _TOKEN.sub(HIDDEN, url)
    without_user_part = _PASSWORD.sub(rf"\g<user>:{HIDDEN}@", without_token)
    return _PARAMETER.sub(rf"\g<name>={HIDDEN}", without_user_part)
