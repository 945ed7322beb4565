"""What stands sealed in the databases of an installation, and which of it the newest key does not open. Blocks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import sqlalchemy as sa
from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from skep.database.api import tables as above
from skep.database.cell import tables as inside
from skep.database.locations import Location, shown
from skep.database.opening import bare_engine
from skep.domain.errors import StorageUnavailable
from skep.standalone.key_ring import KeyRing

ANSWERS = "kept answers"
BUILDS = "secrets of builds under way"


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
        queries = _of_the_api(now) if name == "api" else (_OF_A_CELL,)
        for noun, query in queries:
            stored = _read(name, location, query)
            found[noun] += sum(not _opens(newest, sealed) and _opens(older, sealed) for sealed in stored)
    return found


def seal_addresses_anew(api: Location, ring: KeyRing) -> int:
    """Seal the addresses of cells by the key that seals now; return how many. What no key opens stays as it is."""
    cells = above.cells
    count = 0
    engine = bare_engine(api)
    try:
        with engine.begin() as connection:
            for column in (cells.c.database_url_sealed, cells.c.transport_url_sealed):
                stored = sa.select(cells.c.uuid, column).where(column.is_not(None))
                for uuid, sealed in connection.execute(stored).all():
                    plain = ring.decrypt(sealed)
                    if plain is None:
                        continue
                    changed = sa.update(cells).where(cells.c.uuid == uuid, column == sealed)
                    count += connection.execute(changed.values({column.name: ring.encrypt(plain)})).rowcount
    except sa.exc.SQLAlchemyError as error:
        raise StorageUnavailable(f"{shown(api)} cannot be written: {error}") from error
    finally:
        engine.dispose()
    return count


_OF_A_CELL = BUILDS, sa.select(inside.instances.c.secrets).where(inside.instances.c.secrets.is_not(None))


def _of_the_api(now: int) -> Iterable[tuple[str, sa.Select[tuple[bytes]]]]:
    yield ANSWERS, sa.select(above.kept_answers.c.answer).where(above.kept_answers.c.expires_at > now)
    yield BUILDS, sa.select(above.build_requests.c.secrets).where(above.build_requests.c.secrets.is_not(None))


def _read(name: str, location: Location, query: sa.Select[tuple[bytes]]) -> list[bytes]:
    engine = bare_engine(location)
    try:
        with engine.connect() as connection:
            return list(connection.scalars(query))
    except sa.exc.SQLAlchemyError as error:
        raise StorageUnavailable(f"the database {name}, {shown(location)}, cannot be read: {error}") from error
    finally:
        engine.dispose()


def _opens(opener: Fernet | MultiFernet, sealed: bytes) -> bool:
    try:
        opener.decrypt(sealed)
    except InvalidToken:
        return False
    return True
