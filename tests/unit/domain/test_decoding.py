"""Threads that read the same type for the first time wait for one another."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from skep.contracts.eventually import PATIENCE
from skep.domain.decoding import convert, json_decoder, msgpack_decoder

MEETING = """
from __future__ import annotations

import threading

import msgspec

from skep.domain.decoding import convert, json_decoder, msgpack_decoder

read = []


def second():
    read.append({second})


threads = [threading.Thread(target=second)]


def number():
    # msgspec asks what `Inner` consists of, and has already noted that there is `Outer`.
    threads[0].start()
    threads[0].join(0.5)
    return int


class Inner(msgspec.Struct):
    value: number()


class Outer(msgspec.Struct):
    inner: Inner


class Message(msgspec.Struct):
    outer: Outer


{first}
threads[0].join()
assert read == [Outer(Inner(7))], read
print("whole")
"""
"""A struct whose annotation lets a second thread read a half of it while the first is being told of all of it."""

FIRST = ("msgpack_decoder(Message)", "json_decoder(Message)", 'convert({"outer": {"inner": {"value": 1}}}, Message)')
SECOND = (
    'json_decoder(Outer).decode(b\'{"inner": {"value": 7}}\')',
    'msgpack_decoder(Outer).decode(msgspec.msgpack.encode({"inner": {"value": 7}}))',
    'convert({"inner": {"value": 7}}, Outer)',
)


@pytest.mark.parametrize(("first", "second"), list(zip(FIRST, SECOND, strict=True)))
def test_a_thread_that_reads_a_type_waits_for_the_one_that_is_being_told_of_it(first: str, second: str) -> None:
    script = MEETING.replace("{first}", first).replace("{second}", second)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout) == (0, "whole\n"), done.stderr


class Wrapped(msgspec.Struct):
    """A value that is converted while another conversion makes it."""

    number: object

    def __post_init__(self) -> None:
        self.number = convert(self.number, int, strict=False)


def test_a_struct_may_convert_as_it_is_made() -> None:
    assert convert({"number": "7"}, Wrapped).number == 7


def test_all_who_ask_get_the_same_decoder() -> None:
    assert json_decoder(Wrapped) is json_decoder(Wrapped)
    assert msgpack_decoder(dict[str, int]) is msgpack_decoder(dict[str, int])
    assert msgpack_decoder(dict[str, int]).decode(msgspec.msgpack.encode({"a": 1})) == {"a": 1}
