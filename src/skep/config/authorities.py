"""The authorities whose certificates a connection believes."""

from __future__ import annotations

import ssl

from skep.domain.errors import Misconfigured


def authorities(file: str, setting: str) -> ssl.SSLContext:
    """Return a context that believes the CA of a file, or the system's where `file` is empty.

    Raises Misconfigured, which names the setting, for a file that cannot be used.
    """
    try:
        return ssl.create_default_context(cafile=file or None)
    except (OSError, ssl.SSLError) as error:
        raise Misconfigured(f"{setting}: {file} cannot be used: {error}") from error
