"""What all messages have in common.

A *cast* is a hint: nobody waits, and it may be lost. A *call* waits for its reply until its deadline.
"""

from __future__ import annotations

from typing import Any, ClassVar, Generic, TypeVar

import msgspec

ReplyT = TypeVar("ReplyT")

REGISTRY: dict[str, type[Cast] | type[Call[Any]]] = {}
"""Every message by its name on the wire."""


class Cast(msgspec.Struct, frozen=True, kw_only=True):
    """A message that nobody answers."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        REGISTRY[cls.__name__] = cls


class Call(msgspec.Struct, Generic[ReplyT], frozen=True, kw_only=True):
    """A message that is answered with a `ReplyT`; `reply_type` is that type at run time."""

    reply_type: ClassVar[Any] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.reply_type is not None:
            REGISTRY[cls.__name__] = cls


class Done(msgspec.Struct, frozen=True):
    """The reply that says no more than "received and stored"."""
