"""What all messages have in common.

A *cast* is a hint: it has no answer, and it may be lost. A *call* waits for its reply until its deadline. Each message
declares its name on the wire (`wire_name`), which never changes, whatever its class is called.
"""

from __future__ import annotations

from typing import Any, ClassVar, Generic, TypeVar

import msgspec

ReplyT = TypeVar("ReplyT")

REGISTRY: dict[str, type[Cast] | type[Call[Any]]] = {}
"""Every message by its name on the wire."""


class Cast(msgspec.Struct, frozen=True, kw_only=True):
    """A message without an answer."""

    wire_name: ClassVar[str]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _register(cls)


class Call(msgspec.Struct, Generic[ReplyT], frozen=True, kw_only=True):
    """A message that is answered with a `ReplyT`; `reply_type` is that type at run time."""

    wire_name: ClassVar[str]
    reply_type: ClassVar[Any] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.reply_type is not None:
            _register(cls)


class Done(msgspec.Struct, frozen=True):
    """The reply that means only "received and stored"."""


def _register(message: type[Cast] | type[Call[Any]]) -> None:
    name = message.__dict__.get("wire_name")
    if not isinstance(name, str):
        raise TypeError(f"{message.__name__} declares no wire_name")
    if name in REGISTRY:
        raise TypeError(f"{message.__name__} and {REGISTRY[name].__name__} have one wire_name, {name}")
    REGISTRY[name] = message
