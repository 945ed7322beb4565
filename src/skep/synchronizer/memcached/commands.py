"""memcached's meta commands, as bytes (`protocol.txt` of memcached 1.6). Each is answered by one reply."""

from __future__ import annotations

REMOVED = 1
"""Client flag of a value that says that its record was removed, so that it is told apart without being read."""


def get(name: bytes) -> bytes:
    """Ask for the value and its token."""
    return b"mg %b v c\r\n" % name


def look(name: bytes) -> bytes:
    """Ask for token and flags alone."""
    return b"mg %b c f\r\n" % name


def store(name: bytes, value: bytes, *, seconds: int = 0) -> bytes:
    """Set it whatever is there; it vanishes after `seconds` (0: never)."""
    return b"ms %b %d T%d\r\n%b\r\n" % (name, len(value), seconds, value)


def add(name: bytes, value: bytes, *, flags: int = 0) -> bytes:
    """Set it if nothing is there; the reply has the token."""
    return b"ms %b %d ME F%d c\r\n%b\r\n" % (name, len(value), flags, value)


def swap(name: bytes, value: bytes, cas: int, *, flags: int = 0) -> bytes:
    """Set it if its token is still `cas`; the reply has the new token."""
    return b"ms %b %d C%d F%d c\r\n%b\r\n" % (name, len(value), cas, flags, value)


def probe(name: bytes) -> bytes:
    """Store nothing for a second; a server that is new enough replies with its token."""
    return b"ms %b 0 T1 c\r\n\r\n" % name


def append(name: bytes, value: bytes) -> bytes:
    """Add to the end of what is there."""
    return b"ms %b %d MA\r\n%b\r\n" % (name, len(value), value)


def expire(name: bytes, seconds: int) -> bytes:
    """Let it vanish after `seconds`; the reply has its value."""
    return b"mg %b v c T%d\r\n" % (name, seconds)


def delete(name: bytes, cas: int = 0) -> bytes:
    """Remove it, if its token is still `cas` (0: whatever is there)."""
    return b"md %b C%d\r\n" % (name, cas) if cas else b"md %b\r\n" % name
