"""What stands sealed in the databases of an installation, and which of it the newest key does not open. Blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from skep.database.api import build_requests, cells, kept_answers
from skep.database.cell import guest_secrets
from skep.database.locations import Location, shown
from skep.database.opening import looking_at
from skep.domain.errors import StorageUnavailable
from skep.standalone.key_ring import KeyRing

ANSWERS = "kept answers"
BUILDS = "secrets of builds and actions under way"


def needing_old_keys(locations: Mapping[str, Location], keys: Sequence[bytes], now: int) -> dict[str, int]:
    """Return how much of each kind only keys behind the first open, in the API database and those of the cells.

    Addresses of cells are not counted: `seal_addresses_anew` mends them. Raises StorageUnavailable naming a database
    that cannot be read: what is in it may need an old key.
    """
    found = {ANSWERS: 0, BUILDS: 0}
    if len(keys) < 2:
        return found
    newest, older = Fernet(keys[0]), MultiFernet([Fernet(key) for key in keys[1:]])
    for name, location in locations.items():
        for noun, stored in _sealed_in(name, location, now):
            found[noun] += sum(not _opens(newest, sealed) and _opens(older, sealed) for sealed in stored)
    return found


def seal_addresses_anew(api: Location, ring: KeyRing) -> int:
    """Seal the addresses of cells by the key that seals now; return how many. What no key opens stays as it is."""

    def renewed(sealed: bytes) -> bytes | None:
        plain = ring.decrypt(sealed)
        return None if plain is None else ring.encrypt(plain)

    try:
        with looking_at(api) as connection:
            return cells.seal_addresses_anew(connection, renewed)
    except StorageUnavailable as error:
        raise StorageUnavailable(f"{shown(api)} cannot be written: {error}") from error


def _sealed_in(name: str, location: Location, now: int) -> list[tuple[str, list[bytes]]]:
    try:
        with looking_at(location) as connection:
            if name == "api":
                answers = kept_answers.sealed(connection, now)
                return [(ANSWERS, answers), (BUILDS, build_requests.sealed(connection))]
            return [(BUILDS, guest_secrets.sealed(connection))]
    except StorageUnavailable as error:
        raise StorageUnavailable(f"the database {name}, {shown(location)}, cannot be read: {error}") from error


def _opens(opener: Fernet | MultiFernet, sealed: bytes) -> bool:
    try:
        opener.decrypt(sealed)
    except InvalidToken:
        return False
    return True
