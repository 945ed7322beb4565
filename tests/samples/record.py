"""Recorded samples of what goes over the wire and of what is stored as JSON.

    python -m tests.samples.record      # from the root of the clone

writes a new sample of every message and stored struct whose shape has changed since its newest one. What was recorded
is never written again: whoever reads today's wire and rows must also read those of earlier releases, so a sample that
cannot be read any more says that a release would not understand its predecessor.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec

from skep.api.creating.repeats import Given
from skep.compute.drivers.guest_log import GuestEvent
from skep.compute.entries import Entry
from skep.domain.actions import ActionRequest
from skep.domain.builds import Alternate, Explanation
from skep.domain.context import RequestContext
from skep.domain.instances import Fault, Instance, Shelved
from skep.domain.moves import Size
from skep.domain.request_specs import RequestSpec
from skep.messages import (
    to_cell_conductor,
    to_compute,
    to_scheduler,
    to_scheduler_capacity,
    to_scheduler_liveness,
    to_scheduler_namespaces,
    to_super_conductor,
)
from skep.messages.base import REGISTRY, Call
from skep.scheduler.records import KINDS

ROOT = Path(__file__).parent
RECEIVERS = (
    to_cell_conductor,
    to_compute,
    to_scheduler,
    to_scheduler_capacity,
    to_scheduler_liveness,
    to_scheduler_namespaces,
    to_super_conductor,
)

MESSAGES: dict[str, Any] = dict(sorted(REGISTRY.items()))
REPLIES: dict[str, Any] = {
    found.reply_type.__name__: found.reply_type for found in MESSAGES.values() if issubclass(found, Call)
}
ROWS: dict[str, Any] = {
    found.__name__: found
    for found in (
        Instance,
        RequestSpec,
        RequestContext,
        Fault,
        Explanation,
        Alternate,
        Given,
        ActionRequest,
        Shelved,
        Size,
    )
}
FILES: dict[str, Any] = {found.__name__: found for found in (*get_args(Entry), GuestEvent)}
RECORDS: dict[str, Any] = {f"record-{namespace}": kind for namespace, kind in KINDS.items()}
"""Values of the synchronizer's records, by namespace: schedulers of two releases share them during an upgrade."""

SEALED: dict[str, Any] = {"Welcome": to_cell_conductor.Welcome}
WIRE = {**MESSAGES, **REPLIES, **SEALED}
"""What is sent, as MessagePack. A sample holds its bytes as hexadecimal digits and, to be read by people, its value."""
STORED = {**ROWS, **FILES, **RECORDS}
"""What stands in columns, in the files of a host and in the synchronizer's records, as JSON."""


def example(kind: msgspec.inspect.Type) -> Any:
    """Return plain data of `kind` with every field filled, the same each time."""
    match kind:
        case msgspec.inspect.StructType():
            values = {field.encode_name: example(field.type) for field in kind.fields}
            if kind.array_like:
                return list(values.values())
            return values if kind.tag_field is None else {kind.tag_field: kind.tag, **values}
        case msgspec.inspect.UnionType():
            return example(_variants(kind)[0])
        case msgspec.inspect.DictType():
            return {example(kind.key_type): example(kind.value_type)}
        case msgspec.inspect.TupleType():
            return [example(one) for one in kind.item_types]
        case msgspec.inspect.VarTupleType() | msgspec.inspect.ListType():
            return [example(one) for one in _variants(kind.item_type)]
        case _:
            return _plain(kind)


def _variants(kind: msgspec.inspect.Type) -> list[msgspec.inspect.Type]:
    """Return what a value may be besides nothing: a list gets an example of each."""
    kinds = kind.types if isinstance(kind, msgspec.inspect.UnionType) else (kind,)
    return [one for one in kinds if not isinstance(one, msgspec.inspect.NoneType)]


def _plain(kind: msgspec.inspect.Type) -> Any:
    if isinstance(kind, msgspec.inspect.EnumType):
        return next(iter(kind.cls)).value
    if isinstance(kind, msgspec.inspect.LiteralType):
        return kind.values[0]
    plain: dict[type[msgspec.inspect.Type], Any] = {
        msgspec.inspect.StrType: "text",
        msgspec.inspect.IntType: 7,
        msgspec.inspect.BoolType: True,
        msgspec.inspect.FloatType: 1.5,
        msgspec.inspect.BytesType: b"sealed",
        msgspec.inspect.AnyType: {"any": ["thing", 1]},
        msgspec.inspect.CustomType: {"any": ["thing", 1]},
    }
    return plain[type(kind)]


def value_of(found: Any) -> Any:
    """Return an object of a struct type with every field filled."""
    return msgspec.convert(example(msgspec.inspect.type_info(found)), found)


def recorded(folder: str, name: str) -> list[Path]:
    """Return the samples of one struct, oldest first."""
    return sorted((ROOT / folder).glob(f"{name}.*.json"), key=lambda path: int(path.name.split(".")[-2]))


def shape(data: Any) -> Any:
    """Return the names and kinds in plain data, without its values."""
    if isinstance(data, dict):
        return {key: shape(value) for key, value in sorted(data.items())}
    if isinstance(data, list):
        return [shape(value) for value in data]
    return type(data).__name__


def sample_of(folder: str, found: Any) -> Any:
    """Return what a sample of this struct holds today."""
    value = value_of(found)
    readable = json.loads(msgspec.json.encode(value))
    return readable if folder == "stored" else {"hex": msgspec.msgpack.encode(value).hex(), "value": readable}


def shape_of_sample(folder: str, sample: Any) -> Any:
    """Return the shape of what a sample holds."""
    return shape(sample if folder == "stored" else sample["value"])


def changed() -> Iterator[tuple[str, str, Any, int]]:
    """Yield (folder, name, sample, number) of each struct whose newest sample has another shape, or that has none."""
    for folder, structs in (("messages", WIRE), ("stored", STORED)):
        for name, found in structs.items():
            sample, there = sample_of(folder, found), recorded(folder, name)
            newest = json.loads(there[-1].read_text()) if there else None
            if newest is None or shape_of_sample(folder, newest) != shape_of_sample(folder, sample):
                yield folder, name, sample, len(there) + 1


def main() -> None:
    """Record what has changed."""
    for folder, name, sample, number in list(changed()):
        path = ROOT / folder / f"{name}.{number}.json"
        path.parent.mkdir(exist_ok=True)
        with path.open("x") as file:
            json.dump(sample, file, indent=1, sort_keys=True)
            file.write("\n")
        sys.stdout.write(f"{path.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
