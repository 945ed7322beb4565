"""The words in which the API's fields are described.

A *type* says what a value may be, a `Field` gives it a name inside an `Object`, a direction and the microversions in
which it is there. From such a description three things are derived: JSON Schema for one microversion and direction
(`Type.schema`), typed values out of what clients send (`Type.reader`), and the keys of an answer (`Type.shaper`).
Microversions are the N of 2.N; `since` and `until` are both inclusive.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, ClassVar

from skep.api.microversions import MAXIMUM, MINIMUM

Json = dict[str, Any]
Convert = Callable[[Any], Any]


class Direction(enum.Enum):
    """Which way a field travels."""

    REQUEST = "request"
    RESPONSE = "response"
    BOTH = "both"


REQUEST, RESPONSE, BOTH = Direction.REQUEST, Direction.RESPONSE, Direction.BOTH


@dataclass(frozen=True, kw_only=True)
class Type:
    """What a value may be."""

    changes: ClassVar[tuple[int, ...]] = ()
    """Microversions at which the type itself (not a field inside it) begins to mean something else."""

    nullable: bool = False
    description: str = ""

    def schema(self, version: int, direction: Direction) -> Json:
        """Return the JSON Schema (draft 2020-12) of the value at one microversion."""
        built = self._schema(version, direction)
        if self.nullable:
            built = _or_null(built)
        if self.description:
            built = {**built, "description": self.description}
        return built

    def reader(self, version: int) -> Convert | None:
        """Return what turns a valid value into the type that handlers see; None when nothing is to be done."""
        convert = self._reader(version)
        if convert is None or not self.nullable:
            return convert
        return lambda value: None if value is None else convert(value)

    def shaper(self, version: int) -> Convert | None:
        """Return what reduces a value of the newest microversion to this one; None when nothing is to be done."""
        convert = self._shaper(version)
        if convert is None or not self.nullable:
            return convert
        return lambda value: None if value is None else convert(value)

    def inner(self) -> Iterator[Type | Field]:
        """Iterate over the descriptions directly inside this one."""
        return iter(())

    def _schema(self, version: int, direction: Direction) -> Json:
        raise NotImplementedError

    def _reader(self, version: int) -> Convert | None:  # noqa: ARG002 - most types need no conversion
        return None

    def _shaper(self, version: int) -> Convert | None:  # noqa: ARG002 - likewise
        return None


@dataclass(frozen=True, kw_only=True)
class Field:
    """One key of an object."""

    name: str
    type: Type
    since: int = MINIMUM
    until: int = MAXIMUM
    direction: Direction = BOTH
    required: bool | None = None
    """Unsaid: optional in a request, always there in an answer."""
    secret: bool = False
    """Its value is never shown in an error text."""

    def applies(self, version: int, direction: Direction) -> bool:
        """Tell whether the key may be there."""
        return self.since <= version <= self.until and (
            BOTH in {self.direction, direction} or self.direction is direction
        )

    def is_required(self, direction: Direction) -> bool:
        """Tell whether the key must be there."""
        return direction is RESPONSE if self.required is None else self.required


@dataclass(frozen=True, kw_only=True)
class String(Type):
    """Text. `min` and `max` count characters."""

    min: int = 0
    max: int | None = None
    pattern: str | None = None
    format: str | None = None
    choices: tuple[str, ...] = ()

    def _schema(self, version: int, direction: Direction) -> Json:  # noqa: ARG002 - the same everywhere
        built: Json = {"type": "string"}
        if self.min:
            built["minLength"] = self.min
        if self.max is not None:
            built["maxLength"] = self.max
        if self.pattern is not None:
            built["pattern"] = self.pattern
        if self.format is not None:
            built["format"] = self.format
        if self.choices:
            built["enum"] = list(self.choices)
        return built


@dataclass(frozen=True, kw_only=True)
class Integer(Type):
    """A whole number. In requests digits in a string are taken too, as Nova's clients have always sent them."""

    min: int | None = None
    max: int | None = None
    exact: bool = False
    """Only a JSON number will do."""

    def _schema(self, version: int, direction: Direction) -> Json:  # noqa: ARG002 - the same everywhere
        built: Json = {"type": "integer"}
        if self.min is not None:
            built["minimum"] = self.min
        if self.max is not None:
            built["maximum"] = self.max
        if direction is RESPONSE or self.exact:
            return built
        sign = "" if self.min is not None and self.min >= 0 else "-?"
        return {
            **built,
            "type": ["integer", "string"],
            "pattern": f"^{sign}[0-9]{{1,18}}$",
            "integerWithin": [self.min, self.max],
        }

    def _reader(self, version: int) -> Convert | None:  # noqa: ARG002 - the same everywhere
        return int


@dataclass(frozen=True, kw_only=True)
class Number(Type):
    """A number, whole or not."""

    min: float | None = None
    above: float | None = None
    max: float | None = None

    def _schema(self, version: int, direction: Direction) -> Json:  # noqa: ARG002 - the same everywhere
        built: Json = {"type": "number"}
        if self.min is not None:
            built["minimum"] = self.min
        if self.above is not None:
            built["exclusiveMinimum"] = self.above
        if self.max is not None:
            built["maximum"] = self.max
        if direction is RESPONSE:
            return built
        return {**built, "type": ["number", "string"], "pattern": r"^[0-9]{1,18}(\.[0-9]{1,18})?$"}

    def _reader(self, version: int) -> Convert | None:  # noqa: ARG002 - the same everywhere
        return float


TRUE_WORDS = ("True", "TRUE", "true", "1", "ON", "On", "on", "YES", "Yes", "yes")
FALSE_WORDS = ("False", "FALSE", "false", "0", "OFF", "Off", "off", "NO", "No", "no")


@dataclass(frozen=True, kw_only=True)
class Boolean(Type):
    """Yes or no. In requests the words that Nova takes for them are taken too."""

    exact: bool = False
    """Only a JSON boolean will do."""

    def _schema(self, version: int, direction: Direction) -> Json:  # noqa: ARG002 - the same everywhere
        if direction is RESPONSE or self.exact:
            return {"type": "boolean"}
        return {"type": ["boolean", "string"], "enum": [True, *TRUE_WORDS, False, *FALSE_WORDS]}

    def _reader(self, version: int) -> Convert | None:  # noqa: ARG002 - the same everywhere
        return is_true


@dataclass(frozen=True, kw_only=True)
class Constant(Type):
    """Exactly this value."""

    value: object

    def _schema(self, version: int, direction: Direction) -> Json:  # noqa: ARG002 - the same everywhere
        return {"type": "null"} if self.value is None else {"enum": [self.value]}


@dataclass(frozen=True, kw_only=True)
class Anything(Type):
    """Any JSON value."""

    def _schema(self, version: int, direction: Direction) -> Json:  # noqa: ARG002 - the same everywhere
        return {}


@dataclass(frozen=True, kw_only=True)
class Array(Type):
    """A list of values of one type."""

    item: Type
    min: int = 0
    max: int | None = None
    unique: bool = False

    def _schema(self, version: int, direction: Direction) -> Json:
        built: Json = {"type": "array", "items": self.item.schema(version, direction)}
        if self.min:
            built["minItems"] = self.min
        if self.max is not None:
            built["maxItems"] = self.max
        if self.unique:
            built["uniqueItems"] = True
        return built

    def _reader(self, version: int) -> Convert | None:
        return _for_each(self.item.reader(version))

    def _shaper(self, version: int) -> Convert | None:
        return _for_each(self.item.shaper(version))

    def inner(self) -> Iterator[Type | Field]:
        return iter((self.item,))


@dataclass(frozen=True, kw_only=True)
class Map(Type):
    """An object whose keys are the caller's: metadata, extra specs, hints."""

    value: Type
    key_pattern: str | None = None
    key_max: int | None = None
    min: int = 0
    max: int | None = None

    def _schema(self, version: int, direction: Direction) -> Json:
        built: Json = {"type": "object", "additionalProperties": self.value.schema(version, direction)}
        names: Json = {}
        if self.key_pattern is not None:
            names["pattern"] = self.key_pattern
        if self.key_max is not None:
            names["maxLength"] = self.key_max
        if names and direction is REQUEST:
            built["propertyNames"] = names
        if self.min:
            built["minProperties"] = self.min
        if self.max is not None:
            built["maxProperties"] = self.max
        return built

    def _shaper(self, version: int) -> Convert | None:
        inside = self.value.shaper(version)
        return None if inside is None else lambda value: {key: inside(item) for key, item in value.items()}

    def inner(self) -> Iterator[Type | Field]:
        return iter((self.value,))


@dataclass(frozen=True)
class Object(Type):
    """An object with known keys; others are refused unless it is `open`."""

    fields: tuple[Field, ...] = ()
    open: bool = False
    max: int | None = None
    """How many keys there may be at most."""
    exact: bool = False
    """Handlers give just these keys, at every microversion: an answer holds the value as it is."""

    def _schema(self, version: int, direction: Direction) -> Json:
        there = [field for field in self.fields if field.applies(version, direction)]
        built: Json = {
            "type": "object",
            "properties": {field.name: field.type.schema(version, direction) for field in there},
            "additionalProperties": self.open,
        }
        required = [field.name for field in there if field.is_required(direction)]
        if required:
            built["required"] = required
        if self.max is not None:
            built["maxProperties"] = self.max
        return built

    def _reader(self, version: int) -> Convert | None:
        readers = {
            field.name: reader
            for field in self.fields
            if field.applies(version, REQUEST) and (reader := field.type.reader(version)) is not None
        }
        if not readers:
            return None

        def read(value: Any) -> Any:
            if not isinstance(value, dict):
                return value
            return {key: readers[key](item) if key in readers else item for key, item in value.items()}

        return read

    def _shaper(self, version: int) -> Convert | None:
        if self.exact:
            return None
        there = [field for field in self.fields if field.applies(version, RESPONSE)]
        always = tuple(field.name for field in there if field.is_required(RESPONSE))
        values_of = _values_of(always)
        sometimes = tuple(field.name for field in there if not field.is_required(RESPONSE))
        inside = [(field.name, inner) for field in there if (inner := field.type.shaper(version)) is not None]
        known = {field.name for field in self.fields}

        def shape(value: dict[str, Any]) -> dict[str, Any]:
            shaped = dict(zip(always, values_of(value), strict=True))
            for name in sometimes:
                if name in value:
                    shaped[name] = value[name]
            for name, inner in inside:
                if name in shaped:
                    shaped[name] = inner(shaped[name])
            if self.open:
                shaped.update((key, item) for key, item in value.items() if key not in known)
            return shaped

        return shape

    def inner(self) -> Iterator[Type | Field]:
        return iter(self.fields)


@dataclass(frozen=True)
class Either(Type):
    """One of several types. What clients send is not converted inside it."""

    types: tuple[Type, ...] = ()

    def _schema(self, version: int, direction: Direction) -> Json:
        return {"anyOf": [one.schema(version, direction) for one in self.types]}

    def inner(self) -> Iterator[Type | Field]:
        return iter(self.types)


def is_true(value: object) -> bool:
    """Read a boolean that passed validation."""
    return value is True or value in TRUE_WORDS


def fields(*parts: Field) -> Object:
    """Return a closed object of these fields."""
    return Object(parts)


def _values_of(names: tuple[str, ...]) -> Callable[[dict[str, Any]], tuple[Any, ...]]:
    """Return what takes the values of these keys out of an object."""
    if len(names) > 1:
        return itemgetter(*names)
    return lambda value: tuple(value[name] for name in names)


def _for_each(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    return lambda value: [convert(item) for item in value]


def _or_null(schema: Json) -> Json:
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    if not schema:
        return schema
    built = dict(schema)
    if "enum" in built:
        built["enum"] = [*built["enum"], None]
    kind = built.get("type")
    if kind is not None:
        built["type"] = [*kind, "null"] if isinstance(kind, list) else [kind, "null"]
    return built
