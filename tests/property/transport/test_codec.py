"""Every message, every reply and every error is read as it was written."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skep.domain import errors
from skep.domain.context import RequestContext
from skep.domain.errors import BadRequest, SkepError
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
from skep.transport import codec
from tests.support.samples import examples

RECEIVERS = (
    to_cell_conductor,
    to_compute,
    to_scheduler,
    to_scheduler_capacity,
    to_scheduler_liveness,
    to_scheduler_namespaces,
    to_super_conductor,
)
CALLS = {name: found for name, found in REGISTRY.items() if issubclass(found, Call)}
ERRORS = [found for found in vars(errors).values() if isinstance(found, type) and issubclass(found, SkepError)]
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)
QUICK = settings(max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def values_of(kind: msgspec.inspect.Type) -> st.SearchStrategy[Any]:
    """Return a strategy of values as they are written for `kind`: plain data, from which msgspec makes the structs."""
    match kind:
        case msgspec.inspect.StructType():
            fields = [(field.encode_name, values_of(field.type)) for field in kind.fields]
            if kind.array_like:
                return _row([strategy for _, strategy in fields])
            tag = {} if kind.tag_field is None else {kind.tag_field: st.just(kind.tag)}
            return st.fixed_dictionaries({**dict(fields), **tag})
        case msgspec.inspect.UnionType():
            return st.one_of([values_of(one) for one in kind.types])
        case msgspec.inspect.DictType():
            return st.dictionaries(values_of(kind.key_type), values_of(kind.value_type), max_size=3)
        case msgspec.inspect.VarTupleType() | msgspec.inspect.ListType():
            return st.lists(values_of(kind.item_type), max_size=3)
        case msgspec.inspect.TupleType():
            return _row([values_of(one) for one in kind.item_types])
        case msgspec.inspect.EnumType() | msgspec.inspect.LiteralType():
            return st.sampled_from(_choices(kind))
        case _:
            return _plain(kind)


def _row(strategies: list[st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    return st.tuples(*strategies).map(list)


def _choices(kind: msgspec.inspect.EnumType | msgspec.inspect.LiteralType) -> list[Any]:
    return [one.value for one in kind.cls] if isinstance(kind, msgspec.inspect.EnumType) else list(kind.values)


def _plain(kind: msgspec.inspect.Type) -> st.SearchStrategy[Any]:
    plain: dict[type[msgspec.inspect.Type], st.SearchStrategy[Any]] = {
        msgspec.inspect.StrType: st.text(max_size=12),
        msgspec.inspect.IntType: st.integers(-(2**63), 2**63 - 1),
        msgspec.inspect.BoolType: st.booleans(),
        msgspec.inspect.FloatType: st.floats(allow_nan=False),
        msgspec.inspect.BytesType: st.binary(max_size=12),
        msgspec.inspect.NoneType: st.none(),
        msgspec.inspect.AnyType: ANY_JSON,
        msgspec.inspect.CustomType: ANY_JSON,  # `object`: whatever a user sent
    }
    return plain[type(kind)]


STRATEGIES: dict[Any, st.SearchStrategy[Any]] = {}


def made(kind: Any) -> st.SearchStrategy[Any]:
    """Return a strategy of objects of a struct type."""
    if kind not in STRATEGIES:
        plain = values_of(msgspec.inspect.type_info(kind))
        STRATEGIES[kind] = plain.map(lambda data: msgspec.convert(data, kind))
    return STRATEGIES[kind]


@pytest.mark.parametrize("name", sorted(REGISTRY))
@QUICK
@given(data=st.data())
def test_every_message_is_read_as_it_was_written(name: str, data: st.DataObject) -> None:
    message = data.draw(made(REGISTRY[name]))
    context = data.draw(st.none() | made(RequestContext))
    assert codec.decode(codec.encode(message, context)) == (message, context)


@pytest.mark.parametrize("name", sorted(CALLS))
@QUICK
@given(data=st.data())
def test_every_reply_is_read_as_it_was_written(name: str, data: st.DataObject) -> None:
    reply_type = CALLS[name].reply_type
    reply = data.draw(made(reply_type))
    assert codec.decode_reply(codec.encode_reply(reply), reply_type) == reply


@pytest.mark.parametrize("error_type", ERRORS)
@given(text=st.text(max_size=30))
def test_every_error_is_raised_again(error_type: type[SkepError], text: str) -> None:
    with pytest.raises(error_type) as raised:
        codec.decode_reply(codec.encode_error(error_type(text)), RequestContext)
    assert type(raised.value) is error_type
    assert str(raised.value) == text


@given(st.text(max_size=20), st.text(max_size=20))
def test_an_error_of_any_other_name_is_a_plain_one(name: str, text: str) -> None:
    if name in {found.__name__ for found in ERRORS}:
        return
    data = msgspec.msgpack.encode([None, [name, text]])
    with pytest.raises(SkepError) as raised:
        codec.decode_reply(data, RequestContext)
    assert type(raised.value) is SkepError


@pytest.mark.parametrize("name", ["annotations", "Exception", "__doc__", "__builtins__"])
def test_the_name_of_an_error_reaches_nothing_but_errors(name: str) -> None:
    data = msgspec.msgpack.encode([None, [name, "text"]])
    with pytest.raises(SkepError, match="text"):
        codec.decode_reply(data, RequestContext)


@given(st.binary(max_size=64))
def test_any_bytes_are_a_message_or_a_bad_request(data: bytes) -> None:
    with pytest.raises(BadRequest, match="message"):
        codec.decode(data)


@given(st.binary(max_size=64))
def test_any_bytes_are_an_answer_or_an_error(data: bytes) -> None:
    with pytest.raises(SkepError):
        codec.decode_reply(data, to_cell_conductor.Permission)


def test_the_file_that_holds_a_message_says_who_receives_it() -> None:
    files = {found.__module__.rpartition(".")[2] for found in REGISTRY.values()}
    assert files == {receiver.__name__.rpartition(".")[2] for receiver in RECEIVERS}


def test_names_on_the_wire_are_the_classes_and_taken_once() -> None:
    for receiver in RECEIVERS:
        for name, found in vars(receiver).items():
            if isinstance(found, type) and found.__module__ == receiver.__name__ and name in REGISTRY:
                assert REGISTRY[name] is found
