"""Descriptions at work: bodies and queries are checked and read, answers are shaped, all compiled once per version.

Error texts have Nova's form, name the field by its path and say what was expected; they never repeat a secret, nor a
value of any length.
"""

from __future__ import annotations

import base64
import binascii
import bisect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import jsonschema_rs

from skep.api.microversions import MAXIMUM, MINIMUM
from skep.api.schemas.expected import expected
from skep.api.schemas.fields import REQUEST, RESPONSE, Convert, Field, Json, Type
from skep.api.schemas.traversal import breakpoints, secret_names
from skep.domain.errors import BadRequest
from skep.domain.invalid_input import MAX_SHOWN, shortened, shown
from skep.http.urls import QueryValues

T = TypeVar("T")

_ABOUT_KEYS = (
    jsonschema_rs.ValidationErrorKind.Required,
    jsonschema_rs.ValidationErrorKind.AdditionalProperties,
)


class Body:
    """The description of a request's body."""

    def __init__(self, description: Type) -> None:
        self.description = description
        self._secrets = secret_names(description)
        self._compiled: _ByVersion[_Compiled] = _ByVersion(breakpoints(description))

    def read(self, value: object, version: int) -> Any:
        """Check the body and return it with numbers and booleans read.

        Raises BadRequest naming the first field that is wrong.
        """
        compiled = self._compiled.get(version)
        if compiled is None:
            compiled = _Compiled(_validator(self.schema(version)), self.description.reader(version))
            self._compiled.put(version, compiled)
        if not compiled.validator.is_valid(value):
            raise BadRequest(self._explain(compiled.validator, self.schema(version), value))
        return value if compiled.read is None else compiled.read(value)

    def schema(self, version: int) -> Json:
        """Return the JSON Schema of the body at a microversion."""
        return self.description.schema(version, REQUEST)

    def _explain(self, validator: jsonschema_rs.Draft202012Validator, schema: Json, value: object) -> str:
        error = _deepest(_first(validator, value))
        path, found = _resolved(value, list(error.instance_path))
        reason = _reason(error, schema)
        if not path:
            return f"Invalid input for the request body. {reason}"
        secret = any(part in self._secrets for part in path)
        said = "***" if secret else shown(found)
        return f"Invalid input for field/attribute {_dotted(path)}. Value: {said}. {reason}"


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One key of a query. Its type judges each value as the text it is."""

    name: str
    type: Type
    since: int = MINIMUM
    until: int = MAXIMUM
    many: bool = True
    """Whether it may stand there more than once (the last one counts)."""


@dataclass(frozen=True)
class Query:
    """The description of a query. Unknown keys are ignored before `closed_since`, refused from then on."""

    parameters: tuple[Parameter, ...] = ()
    closed_since: int = MAXIMUM + 1
    _compiled: dict[int, jsonschema_rs.Draft202012Validator] = field(
        default_factory=dict, compare=False, repr=False, hash=False
    )

    def read(self, values: QueryValues, version: int) -> QueryValues:
        """Check the values and return those of known keys.

        Raises BadRequest naming the first parameter that is wrong.
        """
        known = self._names(version)
        if values:
            validator = self._compiled.get(version)
            if validator is None:
                validator = self._compiled[version] = _validator(self.schema(version))
            if not validator.is_valid(values):
                raise BadRequest(_explain_query(validator, self.schema(version), values))
        return {name: value for name, value in values.items() if name in known}

    def schema(self, version: int) -> Json:
        """Return the JSON Schema of `QueryValues` at a microversion."""
        properties: Json = {}
        for parameter in self.parameters:
            if not parameter.since <= version <= parameter.until:
                continue
            described: Json = {"type": "array", "items": parameter.type.schema(version, REQUEST)}
            if not parameter.many:
                described["maxItems"] = 1
            properties[parameter.name] = described
        return {
            "type": "object",
            "properties": properties,
            "additionalProperties": version < self.closed_since,
        }

    def _names(self, version: int) -> set[str]:
        return {one.name for one in self.parameters if one.since <= version <= one.until}


class AnswerShape:
    """The description of an answer's body."""

    def __init__(self, description: Type) -> None:
        self.description = description
        self._shapers: _ByVersion[tuple[Convert | None]] = _ByVersion(breakpoints(description))

    def apply(self, value: Any, version: int) -> Any:
        """Return what of the newest microversion's `value` belongs into an answer at `version`.

        Raises KeyError when a key that must be there is missing: a bug of the handler.
        """
        found = self._shapers.get(version)
        if found is None:
            found = (self.description.shaper(version),)
            self._shapers.put(version, found)
        return value if found[0] is None else found[0](value)

    def schema(self, version: int) -> Json:
        """Return the JSON Schema of the body at a microversion."""
        return self.description.schema(version, RESPONSE)


def wrapped(name: str, description: Type) -> Field:
    """Return the one required field of a body like `{"flavor": {...}}`."""
    return Field(name=name, type=description, required=True)


@dataclass(frozen=True, slots=True)
class _Compiled:
    validator: jsonschema_rs.Draft202012Validator
    read: Convert | None


class _ByVersion(Generic[T]):
    """One thing for each range of microversions in which a description stays the same."""

    def __init__(self, starts: tuple[int, ...]) -> None:
        self._starts = starts
        self._things: list[T | None] = [None] * len(starts)

    def get(self, version: int) -> T | None:
        return self._things[bisect.bisect_right(self._starts, version) - 1]

    def put(self, version: int, thing: T) -> None:
        self._things[bisect.bisect_right(self._starts, version) - 1] = thing


class _IntegerWithin:
    """The keyword `integerWithin: [min, max]`: bounds for digits in a string, which JSON Schema leaves alone."""

    def __init__(self, _parent: Mapping[str, Any], value: list[int | None], _path: list[str]) -> None:
        self._least, self._most = value

    def validate(self, instance: object) -> None:
        if not isinstance(instance, str) or not instance.lstrip("-").isascii():
            return
        try:
            number = int(instance)
        except ValueError:
            return  # `pattern` beside this keyword refuses it with a better text
        if self._least is not None and number < self._least:
            raise ValueError(f"The value is less than the minimum of {self._least}")
        if self._most is not None and number > self._most:
            raise ValueError(f"The value is greater than the maximum of {self._most}")


def _validator(schema: Json) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(
        schema,
        validate_formats=True,
        formats={"base64": _is_base64},
        mask="The value",
        keywords={"integerWithin": _IntegerWithin},
        pattern_options=jsonschema_rs.RegexOptions(),
    )


def _is_base64(text: str) -> bool:
    """Tell whether the text is base64 as Python's own strict reading takes it; line breaks are allowed, as in Nova."""
    try:
        base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _first(validator: jsonschema_rs.Draft202012Validator, value: object) -> jsonschema_rs.ValidationError:
    """Return the first complaint about an invalid value. To list all of them costs a copy of an object for each key."""
    try:
        validator.validate(value)
    except jsonschema_rs.ValidationError as error:
        return error
    raise ValueError("a value that is valid was to be explained")


def _deepest(error: jsonschema_rs.ValidationError) -> jsonschema_rs.ValidationError:
    """Of an anyOf's branches take the complaint that lies deepest: the branch that the caller meant."""
    kind = error.kind
    if not isinstance(kind, (jsonschema_rs.ValidationErrorKind.AnyOf, jsonschema_rs.ValidationErrorKind.OneOfNotValid)):
        return error
    best = error
    for branch in kind.context:
        for inner in branch:
            candidate = _deepest(inner)
            if len(candidate.instance_path) > len(best.instance_path):
                best = candidate
    return best


def _explain_query(validator: jsonschema_rs.Draft202012Validator, schema: Json, values: QueryValues) -> str:
    error = _deepest(_first(validator, values))
    path, found = _resolved(values, list(error.instance_path))
    reason = _reason(error, schema)
    if not path:
        return f"Invalid input for query parameters. {reason}"
    return f"Invalid input for query parameters {path[0]}. Value: {shown(found)}. {reason}"


def _reason(error: jsonschema_rs.ValidationError, schema: Json) -> str:
    """Say what was expected; of keys that are missing, or that nobody knows, which they are."""
    if isinstance(error.kind, _ABOUT_KEYS):
        return shortened(error.message, 300)
    path = list(error.schema_path)
    if "propertyNames" in path:
        there = _at(schema, path[: path.index("propertyNames")])
        return f"{shortened(error.message, 150)}. Expected: {shortened(expected(there), 300)}"
    return f"Expected: {shortened(expected(_at(schema, path[:-1])), 300)}"


def _resolved(value: Any, path: list[Any]) -> tuple[list[Any], Any]:
    """Follow a path through a value; return it with its true keys, and what stands there.

    The validator reports a key made of digits as a number.
    """
    keys: list[Any] = []
    for part in path:
        if isinstance(value, dict) and part not in value:
            key = next((key for key in value if (key.lstrip("0") or "0") == str(part)), None)
            if key is None:
                break
        else:
            key = part
        keys.append(key)
        value = value[key]
    return keys, value


def _at(value: Any, path: list[Any]) -> Any:
    for part in path:
        value = value[part]
    return value


def _dotted(path: list[Any]) -> str:
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{shortened(part, MAX_SHOWN)}" if text else shortened(part, MAX_SHOWN)
    return text
