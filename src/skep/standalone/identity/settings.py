"""What the embedded identity service is told."""

from __future__ import annotations

from pathlib import Path

import msgspec


class ServiceEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One service of the catalogue and where it answers."""

    type: str
    name: str
    public: str
    internal: str = ""
    """Empty: as `public`."""
    admin: str = ""
    """Empty: as `public`."""


class IdentitySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the embedded identity service."""

    key_file: Path
    """The keys of the tokens; made with mode 0600 where it is missing."""
    public_url: str
    """Address of this service as clients reach it, ending in `/v3`; named in the catalogue and in 401 answers."""
    catalogue: tuple[ServiceEntry, ...] = ()
    region: str = "RegionOne"
    token_expiration: int = 3600
    """Seconds a token is valid (Keystone's [token] expiration)."""
    scrypt_cost: int = 14
    """N = 2 to this power, r = 8, p = 1."""
    password_threads: int = 2
    sign_in_failures: int = 5
    """Wrong passwords of a user from one address that cost no delay."""
    sign_in_longest_delay: int = 300
    """Seconds of the longest delay after more of them."""
    lockout_failure_attempts: int = 0
    """Wrong passwords of a user from all addresses, after which none is looked at for `lockout_duration`; 0: never."""
    lockout_duration: int = 1800
    """Seconds."""
    password_regex: str = ""
    """What the beginning of a new password must match; empty: anything."""
    password_regex_description: str = ""
    """What users are told of it."""
    minimum_password_length: int = 0
    """Characters."""
    unique_last_password_count: int = 0
    """A new password that a user chooses is none of so many less one, the present one counted; below 2: no matter."""
    password_expires_days: int = 0
    """Days after which a password has to be changed; 0: never. It counts for passwords that are set from then on."""
    passwords_waiting: int = 256
    """Sign-ins that may wait for a thread; beyond it the answer is 503 with Retry-After."""
    cache_size: int = 10_000
    """Tokens that are remembered once validated."""
    cache_seconds: int = 10
    """How long until the database is asked again, for changes that another process made."""


def standard_catalogue(
    compute_url: str, identity_url: str, image_url: str, network_url: str = ""
) -> tuple[ServiceEntry, ...]:
    """Return the catalogue of a cloud that has these services; addresses as clients reach them. Empty: it has none."""
    catalogue = (
        ServiceEntry(type="compute", name="skep", public=compute_url),
        ServiceEntry(type="identity", name="skep-identity", public=identity_url),
        ServiceEntry(type="image", name="skep-images", public=image_url),
        ServiceEntry(type="network", name="skep-networks", public=network_url),
    )
    return tuple(entry for entry in catalogue if entry.public)
