"""The keys of a section, read off its struct: the one place that knows how `sections.py` is written."""

from __future__ import annotations

import functools
import typing
from typing import Any, Literal

import msgspec
from msgspec import Meta

from skep.domain.decoding import convert

Hiding = Literal["nothing", "value", "url"]
"""What `skep config show` hides of a value: nothing, all of it, or the password inside an address."""


class SettingKey(msgspec.Struct, frozen=True):
    """One key: what it is called, what it takes, what it is for.

    Exactly one of these holds: it is a nested section (`section`), an array of tables (`item` is the struct
    of each), or a plain value.
    """

    name: str
    path: str
    type: Any
    default: Any
    required: bool
    description: str
    hides: Hiding
    section: type[msgspec.Struct] | None
    item: type[msgspec.Struct] | None

    @property
    def expected(self) -> str:
        """The type and bounds in words, such as `int >= 1` or `one of text, json`."""
        return _in_words(self.type)


@functools.cache
def keys_of(section: type[msgspec.Struct], prefix: str = "") -> tuple[SettingKey, ...]:
    """Return the keys of a section in the order they are declared, their paths below `prefix`."""
    return tuple(
        _key(field, f"{prefix}.{field.name}" if prefix else field.name) for field in msgspec.structs.fields(section)
    )


def _key(field: msgspec.structs.FieldInfo, path: str) -> SettingKey:
    bare, meta = _taken_apart(field.type)
    extra = (meta.extra if meta else None) or {}
    return SettingKey(
        name=field.name,
        path=path,
        type=field.type,
        default=None if field.required else _default(field),
        required=field.required,
        description=(meta.description or "") if meta else "",
        hides=convert(extra.get("hide", "nothing"), Hiding),
        section=bare if _is_struct(bare) else None,
        item=_item_struct(bare),
    )


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default is not msgspec.NODEFAULT:
        return field.default
    return field.default_factory()


def _taken_apart(annotated: Any) -> tuple[Any, Meta | None]:
    if typing.get_origin(annotated) is typing.Annotated:
        bare, *marks = typing.get_args(annotated)
        return bare, next((mark for mark in marks if isinstance(mark, Meta)), None)
    return annotated, None


def _is_struct(bare: Any) -> bool:
    return isinstance(bare, type) and issubclass(bare, msgspec.Struct)


def _item_struct(bare: Any) -> type[msgspec.Struct] | None:
    if typing.get_origin(bare) is tuple:
        item = typing.get_args(bare)[0]
        if _is_struct(item):
            return typing.cast("type[msgspec.Struct]", item)
    return None


def _in_words(annotated: Any) -> str:
    bare, meta = _taken_apart(annotated)
    if typing.get_origin(bare) is Literal:
        return "one of " + ", ".join(str(choice) for choice in typing.get_args(bare))
    if typing.get_origin(bare) is tuple:
        item = typing.get_args(bare)[0]
        return "array of tables" if _is_struct(item) else f"array of {_in_words(item)}"
    if _is_struct(bare) or typing.get_origin(bare) is dict:
        return "table"
    return " ".join([bare.__name__, *_bounds(meta)])


def _bounds(meta: Meta | None) -> list[str]:
    if meta is None:
        return []
    if meta.ge is not None and meta.le is not None:
        words = [f"from {meta.ge} to {meta.le}"]
    else:
        named = {">=": meta.ge, ">": meta.gt, "<=": meta.le, "<": meta.lt}
        words = [f"{sign} {bound}" for sign, bound in named.items() if bound is not None]
    if meta.min_length:
        words.append("not empty" if meta.min_length == 1 else f"of {meta.min_length} or more characters")
    if meta.pattern:
        words.append(f"like {meta.pattern}")
    return words
