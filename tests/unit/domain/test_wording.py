"""Control characters in the texts of messages are refused wherever they stand."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from skep.domain.errors import BadRequest
from skep.domain.wording import refuse_control_characters


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
