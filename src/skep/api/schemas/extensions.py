"""Extensions: answers (Nova's API reference, "Extensions": since microversions a fixed list)."""

from __future__ import annotations

from skep.api.schemas.fields import Array, fields
from skep.api.schemas.shared import LINKS, TEXT, shown
from skep.api.schemas.validation import AnswerShape

EXTENSION = fields(
    shown("alias", TEXT),
    shown("name", TEXT),
    shown("description", TEXT),
    shown("namespace", TEXT),
    shown("updated", TEXT),
    shown("links", LINKS),
)
LISTED = AnswerShape(fields(shown("extensions", Array(item=EXTENSION))))
SHOWN = AnswerShape(fields(shown("extension", EXTENSION)))
