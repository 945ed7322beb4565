"""Which characters a name in a request may have: none that cannot be seen, at its ends neither."""

from __future__ import annotations

import re

import pytest

from skep.api.schemas.aggregates import ZONE_NAME
from skep.api.schemas.shared import NAME

UNSEEN = ("\x00", "\x07", "\x1b", "\x7f", "\x85", "\u200b", "\u202e", "\ufeff")


@pytest.mark.parametrize("kind", [NAME, ZONE_NAME])
@pytest.mark.parametrize("character", UNSEEN)
def test_no_name_has_a_character_that_cannot_be_seen(kind: object, character: str) -> None:
    pattern = getattr(kind, "pattern", "")
    for name in (character, f"{character}a", f"a{character}", f"a{character}b"):
        assert re.search(pattern, name) is None, repr(name)


@pytest.mark.parametrize("name", ["a", "a b", "rack 7", "é ñ", "名前"])
def test_others_are_taken(name: str) -> None:
    for kind in (NAME, ZONE_NAME):
        assert re.search(kind.pattern or "", name)
