"""What a JSON Schema lets a value be, in words: for error texts."""

from __future__ import annotations

from skep.api.schemas.fields import FALSE_WORDS, TRUE_WORDS, Json

_FORMATS = {
    "uuid": "a UUID",
    "ipv4": "an IPv4 address",
    "ipv6": "an IPv6 address",
    "base64": "a text in base64",
    "date-time": "a time as 2026-01-31T12:00:00Z",
}
_BOOLEAN = {True, False, *TRUE_WORDS, *FALSE_WORDS}
_MOST_CHOICES = 12


def expected(schema: Json) -> str:
    """Return what a value must be."""
    if "description" in schema and schema.get("type") != "string":
        return str(schema["description"])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(expected, schema["anyOf"])))
    if "enum" in schema:
        return _one_of(schema["enum"])
    said = schema.get("type")
    kinds = [said] if isinstance(said, str) else list(said or ())
    if "integer" in kinds or "number" in kinds:
        # Digits in a text are taken for numbers, and need no words.
        kinds = [kind for kind in kinds if kind != "string"]
    return " or ".join(_of_kind(kind, schema) for kind in sorted(kinds, key="null".__eq__)) or "any value"


def _one_of(choices: list[object]) -> str:
    if _BOOLEAN.issuperset(choices):
        return "true or false"
    named = [_quoted(choice) for choice in choices[:_MOST_CHOICES]]
    rest = " or others" if len(choices) > _MOST_CHOICES else ""
    return f"one of {', '.join(named)}{rest}" if len(named) > 1 else named[0]


def _quoted(choice: object) -> str:
    return "null" if choice is None else repr(choice)


def _of_kind(kind: str, schema: Json) -> str:
    match kind:
        case "string":
            return _text(schema)
        case "integer":
            return f"a whole number{_bounds(schema)}"
        case "number":
            return f"a number{_bounds(schema)}"
        case "array":
            return _list(schema)
        case "object":
            return _object(schema)
        case "boolean":
            return "true or false"
    return kind


def _text(schema: Json) -> str:
    if "format" in schema:
        return _FORMATS.get(schema["format"], f"a text of the format {schema['format']}")
    span = _span(schema.get("minLength"), schema.get("maxLength"))
    words = f"a text of {_counted(span, 'character')}" if span else "a text"
    if "description" in schema:
        return f"{words}, {schema['description']}"
    return f"{words} that matches {schema['pattern']}" if "pattern" in schema else words


def _list(schema: Json) -> str:
    span = _span(schema.get("minItems"), schema.get("maxItems"))
    different = "different " if schema.get("uniqueItems") else ""
    items = f" of {_counted(span, f'{different}item')}" if span else f" of {different}items" if different else ""
    return f"a list{items}, each {expected(schema['items'])}"


def _object(schema: Json) -> str:
    span, names = _span(schema.get("minProperties"), schema.get("maxProperties")), schema.get("propertyNames", {})
    words = f"an object of {_counted(span, 'key')}" if span else "an object"
    if "pattern" in names:
        words += f", keys that match {names['pattern']}"
    if "maxLength" in names:
        words += f", keys of at most {names['maxLength']} characters"
    return words


def _bounds(schema: Json) -> str:
    above = schema.get("exclusiveMinimum")
    span = _span(schema.get("minimum"), schema.get("maximum"))
    words = (f"above {above}" if above is not None else "", span)
    return "".join(f", {word}" for word in words if word)


def _span(least: float | None, most: float | None) -> str:
    if least is None:
        return "" if most is None else f"at most {most}"
    if most is None:
        return f"at least {least}"
    return f"{least} to {most}" if least != most else f"{least}"


def _counted(span: str, noun: str) -> str:
    """Return how many of something: one of it only where the span ends with 1."""
    return f"{span} {noun}" if span == "1" or span.endswith(" 1") else f"{span} {noun}s"
