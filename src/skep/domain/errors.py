"""The tree of errors. A "no" that belongs to normal work is a value, never one of these.

SkepError
├── BadRequest            what a client sent cannot be done; names the field           400
│   └── BrokenOff            the client went away before it had sent all
├── Unauthenticated       no valid token                                               401
├── Forbidden             policy or quota                                              403
│   └── QuotaExceeded
├── NotFound              no such thing for this caller                                404
├── Conflict              the thing is in a state that does not allow it               409
│   └── StaleAgent           a younger agent with the same identity has registered
├── Withdrawn             what Nova once could do, and never will again               410
├── Outdated              it was to be changed only as the caller knows it           412
├── TooLarge              a body or a value beyond its limit                           413
├── TooManyAttempts       too many wrong passwords; wait before the next one           429
├── TooManyRequests       a project or an address asks too much                        429
├── Unsupported           no driver of this cloud can do it                            501
├── Unavailable           try again: storage, backlog, a neighbour that is away        503
│   ├── StorageUnavailable   disk full, database locked or gone
│   │   └── OutcomeUnknown       unknown whether it was stored                    504
│   ├── Overloaded           a backlog is at its limit
│   ├── Unreachable          a call got no answer in time
│   └── UnknownSession       the speaker and the conductors share no keys: it has to register
└── Misconfigured         the operator's configuration cannot work
"""

from __future__ import annotations


class SkepError(Exception):
    """Any error that Skep raises on purpose; its text may be shown to the caller."""


class BadRequest(SkepError):
    """What was asked cannot be done; the text names the field and what was expected."""


class BrokenOff(BadRequest):
    """The client went away, or sent no more, before the end of its request's body."""


class Unauthenticated(SkepError):
    """There is no valid token."""


class Forbidden(SkepError):
    """Policy does not allow this caller to do it."""


class QuotaExceeded(Forbidden):
    """The project's quota does not allow it."""


class NotFound(SkepError):
    """There is no such thing, or none that this caller may know of."""


class Conflict(SkepError):
    """The thing is in a state that does not allow what was asked."""


class Outdated(SkepError):
    """The thing is not as the caller knows it any more, and only then was it to be changed."""


class StaleAgent(Conflict):
    """The sender is the older of two agents with one identity: it must stop."""


class Withdrawn(SkepError):
    """It was there once, and no client gets it any more."""


class TooLarge(SkepError):
    """A body or a value is larger than its limit."""


class TooManyAttempts(SkepError):
    """Too many wrong passwords came from there; after `retry_after` seconds the next one is looked at."""

    retry_after: int = 1

    @classmethod
    def until(cls, retry_after: int) -> TooManyAttempts:
        """Return the error that says after how many seconds to try again."""
        error = cls(f"There were too many failed sign-ins. Try again in {retry_after} seconds.")
        error.retry_after = retry_after
        return error


class Unsupported(SkepError):
    """No driver of this cloud can do what was asked."""


class TooManyRequests(SkepError):
    """A project or an address asks too often, or too much at once; after `retry_after` seconds it may again."""

    retry_after: int = 1

    @classmethod
    def until(cls, retry_after: int) -> TooManyRequests:
        """Return the error that says after how many seconds to try again."""
        error = cls("This request was rate-limited.")
        error.retry_after = max(1, retry_after)
        return error


class Unavailable(SkepError):
    """It cannot be done now; `retry_after` seconds later it may be."""

    retry_after: int = 1


class StorageUnavailable(Unavailable):
    """A database cannot store or read now (disk full, locked, gone). Nothing was half stored."""


class OutcomeUnknown(StorageUnavailable):
    """A database gave no answer to a COMMIT and could not be asked about it: it is stored, or it is not."""

    servers: tuple[str, ...] = ()
    """The servers that a create would have made."""


class Overloaded(Unavailable):
    """A backlog is at its limit."""

    retry_after = 5


class Unreachable(Unavailable):
    """A call got no answer before its deadline."""


class UnknownSession(Unavailable):
    """The speaker and the conductors of its cell share no keys (any more): it has to register."""


class Misconfigured(SkepError):
    """The operator's configuration names something that cannot work."""
