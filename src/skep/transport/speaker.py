"""Who speaks, as far as it is proven: by a session, or by a transport whose messages never leave the process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import msgspec

from skep.domain.ids import NodeUuid


class Speaker(msgspec.Struct, frozen=True):
    """One run of the agent of a host."""

    node: NodeUuid
    host: str
    incarnation: int | None
    """The number of the run; None: a release that does not say it, or a run that has none yet."""


_SPEAKER: ContextVar[Speaker | None] = ContextVar("skep_speaker", default=None)
"""Goes with a message inside one process as the task that works on it is begun; no wire carries it."""


@contextmanager
def speaking(speaker: Speaker) -> Iterator[None]:
    """Let what is sent inside be known as this agent's, on a transport that proves senders."""
    token = _SPEAKER.set(speaker)
    try:
        yield
    finally:
        _SPEAKER.reset(token)


def proven_speaker() -> Speaker | None:
    """Return the agent that sent the message at hand, where the transport proves it."""
    return _SPEAKER.get()
