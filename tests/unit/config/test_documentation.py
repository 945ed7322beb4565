"""The page of all keys is complete and up to date."""

from __future__ import annotations

from pathlib import Path

import msgspec

from skep.config import Config
from skep.config.documentation import render
from skep.config.keys import SettingKey, keys_of

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def every_key(section: type[msgspec.Struct], prefix: str = "") -> list[SettingKey]:
    found = []
    for key in keys_of(section, prefix):
        nested = key.section or key.item
        found += [key, *(every_key(nested, key.path) if nested else [])]
    return found


def test_the_committed_page_is_what_the_sections_say() -> None:
    assert PAGE.read_text() == render(), "run `skep config docs > docs/configuration.md`"


def test_every_key_says_in_one_line_what_it_is_for() -> None:
    described = [key for key in every_key(Config) if key.section is None]
    assert [key.path for key in described if not key.description or "\n" in key.description] == []


def test_every_section_says_what_it_is_for() -> None:
    nested = [key.section or key.item for key in every_key(Config)]
    assert [struct.__name__ for struct in nested if struct and not struct.__doc__] == []
