"""Control characters in the texts of messages are refused wherever they stand."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from skep.domain.errors import BadRequest
from skep.domain.wording import refuse_control_characters, without_hosts


class Said(msgspec.Struct):
    host: str = "host1"
    node: str | None = None
    raw: bytes = b"\x00\n"
    amounts: dict[str, int] = {}
    notes: list[dict[str, str]] = []


@pytest.mark.parametrize("bad", ["\x00", "a\nb", "\x1b[31m", "\x7f", "\x9f"])
@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda text: Said(host=text), "host"),
        (lambda text: Said(node=text), "node"),
        (lambda text: Said(amounts={text: 1}), "amounts"),
        (lambda text: Said(notes=[{"a": "fine"}, {"b": text}]), "notes.b"),
    ],
)
def test_a_control_character_is_refused_wherever_it_stands(make: Callable[[str], Said], field: str, bad: str) -> None:
    with pytest.raises(BadRequest, match=rf"^{field}"):
        refuse_control_characters(make(bad), "")


@pytest.mark.parametrize("good", ["host1", "größe", "東京", 'a "quoted" \\ text', "\u200b"])
def test_other_texts_pass(good: str) -> None:
    refuse_control_characters(Said(host=good, amounts={good: 1}, notes=[{good: good}]), "")


def test_texts_of_several_lines_pass_where_they_may_have_them() -> None:
    refuse_control_characters(Said(host="first\n\tsecond\r\n"), "", lines=True)
    with pytest.raises(BadRequest, match="host"):
        refuse_control_characters(Said(host="first\x00second"), "", lines=True)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("Host rack-1.h1 does not have node n1.", "A host does not have node n1."),
        ("there is no guest on rack-1.h1: it is on host h2.", "there is no guest on a host: it is on a host."),
        ("h2: SpawnFailed: the agent of host h2 is old", "a host: SpawnFailed: the agent of a host is old"),
        ("host rack-1.h11 and h2-b and rack-1 are others", "host rack-1.h11 and h2-b and rack-1 are others"),
        ("No valid host: 6 hosts considered", "No valid host: 6 hosts considered"),
    ],
)
def test_names_of_hosts_are_left_out(said: str, told: str) -> None:
    assert without_hosts(said, {"rack-1.h1", "h2"}) == told
