"""A message's name on the wire is declared, so that its class may be renamed."""

from __future__ import annotations

from typing import ClassVar

import pytest

from skep.messages.base import REGISTRY, Cast
from skep.transport import codec


def test_the_declared_name_is_what_is_sent() -> None:
    class Renamed(Cast, frozen=True, kw_only=True):
        wire_name: ClassVar[str] = "OldName"

    try:
        assert b"OldName" in codec.encode(Renamed(), None)
        assert codec.decode(codec.encode(Renamed(), None)) == (Renamed(), None)
    finally:
        del REGISTRY["OldName"]


def test_a_name_is_declared_by_each_message_itself_and_once() -> None:
    with pytest.raises(TypeError, match="declares no wire_name"):

        class Nameless(Cast, frozen=True, kw_only=True):
            pass

    with pytest.raises(TypeError, match=r"Second and .* have one wire_name, ChangePower"):

        class Second(Cast, frozen=True, kw_only=True):
            wire_name: ClassVar[str] = "ChangePower"
