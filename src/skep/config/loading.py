"""Reads the file and the environment, checks every key, remembers where each value came from.

The environment wins over the file, the file over the defaults. A variable is the key's path in capitals
behind `SKEP_`, sections joined by two underscores: `SKEP_API__PORT`, `SKEP_COMPUTE__FAKE__VCPUS`. Lists are
written with commas, tables and arrays of tables as JSON.
"""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from skep.config.errors import ConfigError, Problem
from skep.config.keys import SettingKey, keys_of
from skep.config.provenance import Source
from skep.config.sections import Config
from skep.config.urls import HIDDEN
from skep.domain.decoding import convert

FILE_VARIABLE = "SKEP_CONFIG"
"""Names the configuration file; the only variable with our prefix that is not a key."""

_PREFIX = "SKEP_"


class LoadedConfig(msgspec.Struct, frozen=True):
    """A configuration that passed every check, and the origin of each value that is not a default."""

    config: Config
    sources: Mapping[str, Source]


def load(path: Path | None, environ: Mapping[str, str]) -> LoadedConfig:
    """Return the configuration of a file (none: defaults) and an environment, checked.

    Without a path the file that `SKEP_CONFIG` names is read. Raises ConfigError, which names every problem: a
    file that cannot be read, an unknown key with the nearest one there is, a value of the wrong type or out
    of bounds.
    """
    if path is None and environ.get(FILE_VARIABLE):
        path = Path(environ[FILE_VARIABLE])
    given: dict[str, _Given] = {}
    problems: list[Problem] = []
    if path is not None:
        _read_table(_parsed(path), Config, "", str(path), given, problems)
    _read_environment(environ, given, problems)
    values = _checked(given, problems)
    if problems:
        raise ConfigError(problems)
    return LoadedConfig(_built(Config, "", values, given), {key: one.source for key, one in given.items()})


class _Given(msgspec.Struct, frozen=True):
    """A raw value for a known key. Text of the environment is read leniently: `8080` is a number there."""

    key: SettingKey
    value: Any
    source: Source


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError([Problem("file", str(path), f"cannot be read: {error.strerror}")]) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError([Problem("file", str(path), f"is not TOML: {error}")]) from error


def _read_table(
    table: Mapping[str, Any],
    section: type[msgspec.Struct],
    prefix: str,
    file: str,
    given: dict[str, _Given],
    problems: list[Problem],
) -> None:
    where = f"{file}:[{prefix}]" if prefix else file
    known = {key.name: key for key in keys_of(section, prefix)}
    for name, value in table.items():
        key = known.get(name)
        if key is None:
            problems.append(_unknown(f"{prefix}.{name}" if prefix else name, list(known), name, where))
        elif key.section is None:
            place = f"{file}:[[{key.path}]]" if key.item else where
            given[key.path] = _Given(key, value, Source("file", place))
        elif isinstance(value, dict):
            _read_table(value, key.section, key.path, file, given, problems)
        else:
            problems.append(Problem(key.path, where, f"expected table, got {_worded(value)}"))


def _unknown(path: str, known: list[str], name: str, where: str) -> Problem:
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
    return Problem(path, where, f"unknown key, the nearest known one is `{nearest[0]}`")


def _read_environment(environ: Mapping[str, str], given: dict[str, _Given], problems: list[Problem]) -> None:
    known = {_variable(key): key for key in _plain_keys(Config, "")}
    for variable in sorted(environ):
        if not variable.startswith(_PREFIX) or variable == FILE_VARIABLE:
            continue
        key = known.get(variable)
        if key is None:
            problems.append(_unknown(variable, list(known), variable, "environment"))
            continue
        try:
            value = _from_text(key, environ[variable])
        except msgspec.DecodeError as error:
            problems.append(Problem(key.path, variable, f"expected JSON: {error}"))
            continue
        given[key.path] = _Given(key, value, Source("environment", variable))


def _plain_keys(section: type[msgspec.Struct], prefix: str) -> list[SettingKey]:
    found: list[SettingKey] = []
    for key in keys_of(section, prefix):
        found += [key] if key.section is None else _plain_keys(key.section, key.path)
    return found


def _variable(key: SettingKey) -> str:
    return _PREFIX + key.path.upper().replace(".", "__")


def _from_text(key: SettingKey, text: str) -> Any:
    if (
        key.item is not None
        or key.expected == "table"
        or (key.expected.startswith("array") and text.lstrip().startswith("["))
    ):
        return msgspec.json.decode(text)
    if key.expected.startswith("array"):
        return [part.strip() for part in text.split(",") if part.strip()]
    return text


def _checked(given: Mapping[str, _Given], problems: list[Problem]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for path, one in given.items():
        values[path] = _value(one, problems)
    return values


def _value(one: _Given, problems: list[Problem]) -> Any:
    return _single(one, problems) if one.key.item is None else _items(one, one.key.item, problems)


def _single(one: _Given, problems: list[Problem]) -> Any:
    lenient = one.source.kind == "environment"
    try:
        value = convert(one.value, one.key.type, strict=not lenient)
    except msgspec.ValidationError:
        got = HIDDEN if one.key.hides != "nothing" else _worded(one.value)
        problems.append(Problem(one.key.path, str(one.source), f"expected {one.key.expected}, got {got}"))
        return None
    if isinstance(value, float) and not math.isfinite(value):
        problems.append(Problem(one.key.path, str(one.source), f"expected a finite number, got {value}"))
    return value


def _items(one: _Given, item: type[msgspec.Struct], problems: list[Problem]) -> tuple[msgspec.Struct, ...]:
    if not isinstance(one.value, list) or not all(isinstance(table, dict) for table in one.value):
        problems.append(Problem(one.key.path, str(one.source), f"expected array of tables, got {_worded(one.value)}"))
        return ()
    made = (
        _item(table, item, f"{one.key.path}[{place}]", one.source, problems) for place, table in enumerate(one.value)
    )
    return tuple(struct for struct in made if struct is not None)


def _item(
    table: dict[str, Any], item: type[msgspec.Struct], path: str, source: Source, problems: list[Problem]
) -> msgspec.Struct | None:
    keys = {key.name: key for key in keys_of(item, path)}
    found = [_unknown(f"{path}.{name}", list(keys), name, str(source)) for name in table if name not in keys]
    found += [
        Problem(key.path, str(source), f"is missing, expected {key.expected}")
        for key in keys.values()
        if key.required and key.name not in table
    ]
    values = {name: _value(_Given(keys[name], value, source), found) for name, value in table.items() if name in keys}
    if not found:
        try:
            return item(**values)
        except ValueError as error:
            found.append(Problem(path, str(source), str(error)))
    problems += found
    return None


def _built(section: type[msgspec.Struct], prefix: str, values: Mapping[str, Any], given: Mapping[str, _Given]) -> Any:
    arguments: dict[str, Any] = {}
    for key in keys_of(section, prefix):
        if key.section is not None:
            arguments[key.name] = _built(key.section, key.path, values, given)
        elif key.path in values:
            arguments[key.name] = values[key.path]
    try:
        return section(**arguments)
    except ValueError as error:
        where = ", ".join(sorted({str(one.source) for path, one in given.items() if path.startswith(prefix)}))
        raise ConfigError([Problem(prefix or "configuration", where, str(error))]) from error


def _worded(value: Any) -> str:
    kind = "table" if isinstance(value, dict) else "array" if isinstance(value, list) else type(value).__name__
    return kind if kind in {"table", "array"} else f"{kind} {value!r}"
