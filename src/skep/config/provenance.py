"""Where each value came from, for `skep config show`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from skep.config.keys import SettingKey, keys_of
from skep.config.sections import Config
from skep.config.urls import HIDDEN, masked


class Source(msgspec.Struct, frozen=True):
    """One origin of a value. `where` is a path with its section, or the name of a variable."""

    kind: Literal["default", "file", "environment"]
    where: str = ""

    def __str__(self) -> str:
        """What `skep config show` prints beside the value."""
        return self.where or self.kind


DEFAULT = Source("default")


class Setting(msgspec.Struct, frozen=True):
    """One key with its value as it may be shown: secrets are hidden already."""

    key: str
    value: Any
    source: Source
    description: str


def settings(config: Config, sources: Mapping[str, Source]) -> tuple[Setting, ...]:
    """Return every key of `config` in the order of the sections; `sources` as `load` answered them.

    Arrays of tables (`cells`, `compute.fake.failures`) are one setting each, a list of plain dicts.
    """
    return tuple(_settings(config, Config, "", sources))


def _settings(
    section: msgspec.Struct, section_type: type[msgspec.Struct], prefix: str, sources: Mapping[str, Source]
) -> Iterator[Setting]:
    for key in keys_of(section_type, prefix):
        value = getattr(section, key.name)
        if key.section is not None:
            yield from _settings(value, key.section, key.path, sources)
        else:
            yield Setting(key.path, shown(key, value), sources.get(key.path, DEFAULT), key.description)


def shown(key: SettingKey, value: Any) -> Any:
    """Return the value of a key as plain data that may be printed."""
    if key.item is not None:
        members = keys_of(key.item, key.path)
        return [{member.name: shown(member, getattr(item, member.name)) for member in members} for item in value]
    if key.hides == "value" and value:
        return HIDDEN
    if key.hides == "url":
        return masked(value)
    return msgspec.to_builtins(value)
