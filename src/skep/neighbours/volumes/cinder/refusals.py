"""What becomes of a refusal of Cinder's: by whom it is read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from skep.domain.errors import Unavailable
from skep.neighbours.answers import VOLUMES as SERVICE
from skep.neighbours.volumes.cinder.calls import CinderRefused


@contextlib.contextmanager
def told_to_users() -> Iterator[None]:
    """Turn a refusal into an error that users are told."""
    try:
        yield
    except CinderRefused as error:
        raise error.for_user from error


@contextlib.contextmanager
def told_to_skep() -> Iterator[None]:
    """Turn a refusal of what cannot be refused into an error after which it is asked again."""
    try:
        yield
    except CinderRefused as error:
        raise Unavailable(f"{SERVICE} refuses it to Skep's own user: {error}") from error
