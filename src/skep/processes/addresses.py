"""Addresses of cells in their rows. A URL with a password is stored sealed with the installation's key, beside what of
it may be shown: a copy of the API database alone opens no cell.
"""

from __future__ import annotations

from skep.config.urls import masked
from skep.database.api.cells import Addresses
from skep.domain.errors import Misconfigured
from skep.processes.directory import StateDirectory


def to_store(directory: StateDirectory, database_url: str, transport_url: str) -> Addresses:
    """Return what stands in a cell's row."""
    return Addresses(
        database_url=masked(database_url),
        database_url_sealed=_sealed(directory, database_url),
        transport_url=masked(transport_url),
        transport_url_sealed=_sealed(directory, transport_url),
    )


def database_url(directory: StateDirectory, addresses: Addresses) -> str:
    """Return the whole URL of a cell's database; empty: it follows from the configuration.

    Raises Misconfigured when it was sealed with another installation's key.
    """
    return _whole(directory, addresses.database_url, addresses.database_url_sealed)


def transport_url(directory: StateDirectory, addresses: Addresses) -> str:
    """Return the whole URL of a cell's NATS servers, as `database_url` does."""
    return _whole(directory, addresses.transport_url, addresses.transport_url_sealed)


def _sealed(directory: StateDirectory, url: str) -> bytes | None:
    return None if masked(url) == url else directory.seal().encrypt(url.encode())


def _whole(directory: StateDirectory, shown: str, sealed: bytes | None) -> str:
    if sealed is None:
        return shown
    # Without a key none is made: it would open nothing, and hide that one is missing.
    opened = directory.seal().decrypt(sealed) if directory.secrets_key.exists() else None
    if opened is None:
        raise Misconfigured(
            f"the password in {shown} cannot be read with the key in {directory.keys}: copy `keys/` from a machine "
            "of this installation, or give the address again (`skep cell set NAME --database-url ...`)"
        )
    return opened.decode()
