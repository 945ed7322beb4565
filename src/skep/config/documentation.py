"""Renders `docs/configuration.md` from the sections, so that it cannot be out of date."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from skep.config.keys import SettingKey, keys_of
from skep.config.sections import Config

_OPENING = """\
# Configuration

Written by `skep config docs`; change the sections in `src/skep/config/` instead of this page.

Skep reads one TOML file (`--config PATH` or `SKEP_CONFIG`) and the environment, which wins. Everything has a
default: without a file the whole cloud runs. A variable is the key in capitals behind `SKEP_`, its sections
joined by two underscores: `api.port` is `SKEP_API__PORT`, `compute.fake.vcpus` is
`SKEP_COMPUTE__FAKE__VCPUS`. Lists are written with commas there, tables and arrays of tables as JSON. An unknown key is
an error, and so is a value of the wrong type. `skep config show` prints each value and where it came from,
with secrets hidden.
"""


def render() -> str:
    """Return the page, Markdown with a final newline."""
    return "\n".join([_OPENING, *_sections(keys_of(Config))])


def _sections(keys: tuple[SettingKey, ...]) -> Iterator[str]:
    for key in keys:
        if key.section is not None:
            yield _table(f"[{key.path}]", key.section, key.path)
            yield from _sections(keys_of(key.section, key.path))
        elif key.item is not None:
            yield _table(f"[[{key.path}]]", key.item, key.path)
            yield from _sections(tuple(one for one in keys_of(key.item, key.path) if one.item is not None))


def _table(title: str, section: type[msgspec.Struct], path: str) -> str:
    rows = [_row(key) for key in keys_of(section, path) if key.section is None]
    purpose = (section.__doc__ or "").strip().splitlines()[0]
    head = ["| key | value | default | purpose |", "| --- | --- | --- | --- |"]
    return "\n".join([f"## `{title}`", "", purpose, "", *head, *rows, ""])


def _row(key: SettingKey) -> str:
    hidden = " (hidden by `config show`)" if key.hides == "value" else ""
    default = "required" if key.required else f"`{_toml(key.default)}`"
    takes = key.expected.replace("|", "\\|")
    return f"| `{key.name}` | {takes} | {default} | {key.description}{hidden} |"


def _toml(value: object) -> str:
    return msgspec.json.encode(value).decode()
