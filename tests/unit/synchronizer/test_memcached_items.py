"""What the memcached backend stores is read back as it was written; garbage is recognised."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.synchronizer.base import MAX_NAME_LENGTH, Cursor, Key, Record
from skep.synchronizer.memcached.items import (
    DIGEST,
    RING,
    Damaged,
    HeldItem,
    ItemNames,
    Root,
    decode_entry,
    decode_held,
    decode_index,
    decode_root,
    digest_of,
    encode_entry,
    encode_held,
    encode_index,
    encode_root,
)
from skep.synchronizer.memcached.reading import MemcachedPosition

MOST_NAME_BYTES = 250
"""Of an item, by memcached's protocol."""

_words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=MAX_NAME_LENGTH)
_keys = st.builds(Key, _words, _words)
_digests = st.binary(min_size=DIGEST, max_size=DIGEST)
_writers = st.text("0123456789abcdef", min_size=8, max_size=8)


@given(_keys, st.integers(0, 2**63), st.binary(min_size=1), st.integers(0, 2**63))
def test_a_value_is_read_as_it_was_written(key: Key, generation: int, body: bytes, at: int) -> None:
    value = encode_held(key, generation, body, removed_at=at)
    assert decode_held(value) == HeldItem(Record(key=key, generation=generation, body=body), 0)
    assert decode_held(encode_held(key, generation, b"", removed_at=at)).removed_at == at


@given(st.lists(_digests), st.integers(0, 2**63))
def test_entries_and_parts_of_the_index_are_read_as_they_were_written(digests: list[bytes], number: int) -> None:
    assert decode_entry(encode_entry(number, digests)) == (number, digests)
    assert decode_index(encode_index(digests)) == digests


@given(st.lists(_digests), st.lists(_digests))
def test_a_part_of_the_index_grows_by_appending(before: list[bytes], added: list[bytes]) -> None:
    assert decode_index(encode_index(before) + b"".join(added)) == before + added


def test_a_root_is_read_as_it_was_written() -> None:
    root = Root(epoch="e", shards=3, losses=7, writers=("a", "b"))
    assert decode_root(encode_root(root)) == root


@given(st.binary(max_size=60))
def test_garbage_is_damaged_and_nothing_else(garbage: bytes) -> None:
    for decode in (decode_root, decode_held, decode_entry, decode_index):
        try:
            decode(garbage)
        except Damaged:
            continue


def test_another_format_is_damaged() -> None:
    key = Key("compute", "a")
    with pytest.raises(Damaged):
        decode_held(b"\x02" + encode_held(key, 1, b"x", removed_at=0)[1:])
    with pytest.raises(Damaged):
        decode_root(encode_root(Root(format=2, epoch="e", shards=3, losses=0)))


def test_a_value_cut_short_is_damaged() -> None:
    value = encode_held(Key("compute", "name"), 1, b"", removed_at=1)
    for length in range(len(value)):
        with pytest.raises(Damaged):
            decode_held(value[:length])


@given(_keys, _keys)
def test_keys_are_told_apart(one: Key, other: Key) -> None:
    assert (digest_of(one) == digest_of(other)) == (one == other)


@given(_digests, _writers, st.integers(0, 2**63))
def test_names_are_what_the_protocol_takes(digest: bytes, writer: str, number: int) -> None:
    names = ItemNames("s" * 31, "e" * 16, 4096)
    shard = names.shard_of(digest)
    made = {names.value(digest), names.shard(shard), names.head(writer), names.entry(writer, number)}
    assert len(made) == 4
    assert shard < 4096
    for name in made:
        assert len(name) <= MOST_NAME_BYTES
        assert name.isascii()
        assert not any(character <= 32 or character == 127 for character in name)


def test_a_log_is_a_ring() -> None:
    names = ItemNames("skep", "e", 8)
    assert names.entry("w", 1) == names.entry("w", 1 + RING) != names.entry("w", 2)


@given(_writers, st.integers(0, 2**63), st.dictionaries(_writers, st.integers(0, 2**63)))
def test_a_cursor_says_how_far_each_log_was_read(epoch: str, endings: int, read: dict[str, int]) -> None:
    position = MemcachedPosition(epoch, endings, read)
    assert MemcachedPosition.parse(position.cursor()) == position


@pytest.mark.parametrize(
    "cursor",
    ["", "nonsense", "e/w", "e/0", "e//", "e/0/w", "e/0/w.", "e/0/.1", "e/0/w.-1", "e/0/w.1,", "e/0/w.\u0661", "e/0//"],
)
def test_what_is_no_cursor_is_none(cursor: str) -> None:
    assert MemcachedPosition.parse(Cursor(cursor)) is None


@pytest.mark.parametrize(
    ("read", "heads", "ended", "entries"),
    [
        ({"a": 2}, {"a": 4}, [], [("a", 3), ("a", 4)]),
        ({"a": 2}, {"a": 2, "new": 1}, [], [("new", 1)]),
        ({"a": 2}, {}, [("a", 3)], [("a", 3)]),
        ({}, {}, [("came and went", 1)], [("came and went", 1)]),
        ({"a": 2}, {}, [], None),
        ({"a": 5}, {"a": 4}, [], None),
        ({"a": 1}, {"a": RING + 1}, [], None),
        ({"a": 2}, {"a": RING + 1}, [], [("a", number) for number in range(3, RING + 2)]),
    ],
)
def test_between_two_positions_nothing_is_left_out(
    read: dict[str, int],
    heads: dict[str, int],
    ended: list[tuple[str, int]],
    entries: list[tuple[str, int]] | None,
) -> None:
    assert MemcachedPosition("e", 0, read).unread(MemcachedPosition("e", len(ended), heads), ended) == entries
