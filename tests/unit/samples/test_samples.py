"""Today's code reads every recorded sample, and what its successors will add."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

SAMPLES = Path(__file__).parents[2] / "samples"


def _recorder() -> ModuleType:
    """Load the command that records samples: it knows which structs there are."""
    found = importlib.util.spec_from_file_location("skep_sample_recorder", SAMPLES / "record.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module
    found.loader.exec_module(module)
    return module


record = _recorder()
STRUCTS: dict[str, dict[str, Any]] = {"messages": record.WIRE, "stored": record.STORED}
FILES = sorted(SAMPLES.glob("*/*.json"))
EVERY = [(folder, name) for folder, structs in STRUCTS.items() for name in structs]


def decode(folder: str, found: Any, data: bytes) -> Any:
    return msgspec.json.decode(data, type=found) if folder == "stored" else msgspec.msgpack.decode(data, type=found)


def encode(folder: str, data: Any) -> bytes:
    return msgspec.json.encode(data) if folder == "stored" else msgspec.msgpack.encode(data)


def as_sent(folder: str, sample: Any) -> bytes:
    return encode("stored", sample) if folder == "stored" else bytes.fromhex(sample["hex"])


def plain(folder: str, found: Any) -> Any:
    """Return what today's code writes, as data that can be altered."""
    data = encode(folder, record.value_of(found))
    return msgspec.json.decode(data) if folder == "stored" else msgspec.msgpack.decode(data)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_recorded_sample_is_read(path: Path) -> None:
    folder, name = path.parent.name, path.name.split(".")[0]
    assert name in STRUCTS[folder], "a struct that was sent or stored once must stay readable"
    sample = json.loads(path.read_text())
    value = decode(folder, STRUCTS[folder][name], as_sent(folder, sample))
    told = sample if folder == "stored" else sample["value"]
    holds(json.loads(msgspec.json.encode(value)), told)


def holds(now: Any, then: Any) -> None:
    """Check that `now` says all that `then` said: a field that was renamed would be lost without a word."""
    if isinstance(then, dict):
        for key, value in then.items():
            holds(now[key], value)
    elif isinstance(then, list):
        assert len(now) >= len(then)
        for left, right in zip(now, then, strict=False):
            holds(left, right)
    else:
        assert now == then


@pytest.mark.parametrize(("folder", "name"), EVERY)
def test_everything_sent_or_stored_has_a_sample_of_todays_shape(folder: str, name: str) -> None:
    there = record.recorded(folder, name)
    assert there, "run `python -m tests.samples.record`"
    newest = json.loads(there[-1].read_text())
    today = record.sample_of(folder, STRUCTS[folder][name])
    assert record.shape_of_sample(folder, newest) == record.shape_of_sample(folder, today), (
        "the shape has changed: run `python -m tests.samples.record`"
    )


@pytest.mark.parametrize(("folder", "name"), EVERY)
def test_what_a_later_release_adds_is_passed_over(folder: str, name: str) -> None:
    found = STRUCTS[folder][name]
    more = plain(folder, found)
    if isinstance(more, dict):
        more["a_later_field"] = {"any": "thing"}
    else:
        more.append("a later field")
    assert decode(folder, found, encode(folder, more)) == record.value_of(found)


@pytest.mark.parametrize(("folder", "name"), EVERY)
def test_a_field_with_a_default_may_be_missing(folder: str, name: str) -> None:
    found = STRUCTS[folder][name]
    data = plain(folder, found)
    fields = [one for one in msgspec.structs.fields(found) if not one.required and one.encode_name in data]
    for field in fields:
        less = {key: value for key, value in data.items() if key != field.encode_name}
        value = decode(folder, found, encode(folder, less))
        default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
        assert getattr(value, field.name) == default


def test_a_sample_is_never_written_twice() -> None:
    numbers = [[int(path.name.split(".")[1]) for path in record.recorded(folder, name)] for folder, name in EVERY]
    assert all(found == list(range(1, len(found) + 1)) for found in numbers)
    assert list(record.changed()) == []
