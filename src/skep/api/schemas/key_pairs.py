"""Key pairs: bodies, queries and answers (Nova's API reference, "Keypairs")."""

from __future__ import annotations

from skep.api.public_keys import MAX_PUBLIC_KEY
from skep.api.schemas.fields import Array, Constant, Field, String, fields
from skep.api.schemas.shared import (
    ANY_TEXT,
    COUNT,
    INTEGER,
    LINKS,
    TEXT,
    YES_NO,
    asked,
    shown,
)
from skep.api.schemas.validation import AnswerShape, Body, Parameter, Query

TYPES = String(choices=("ssh", "x509"))
USER = String(min=1, max=255)
GENERATED_UNTIL = 91
"""The last microversion in which Nova generates key pairs."""


def _name(more: str, description: str) -> String:
    sign = rf"[a-zA-Z0-9_{more}-]"
    return String(min=1, max=255, pattern=rf"^{sign}(?:[ a-zA-Z0-9_{more}-]*{sign})?$", description=description)


_NAME = _name("", "letters, digits, '_', '-' and spaces, without spaces at either end")
_NAME_SINCE_92 = _name("@.", "letters, digits, '@', '.', '_', '-' and spaces, without spaces at either end")
_PUBLIC_KEY = String(max=MAX_PUBLIC_KEY)

CREATE = Body(
    fields(
        asked(
            "keypair",
            fields(
                asked("name", _NAME, until=GENERATED_UNTIL, required=True),
                asked("name", _NAME_SINCE_92, since=GENERATED_UNTIL + 1, required=True),
                asked("type", TYPES, since=2),
                asked("public_key", _PUBLIC_KEY, until=GENERATED_UNTIL),
                asked("public_key", _PUBLIC_KEY, since=GENERATED_UNTIL + 1, required=True),
                asked("user_id", USER, since=10),
            ),
            required=True,
        )
    )
)

_USER = Parameter(name="user_id", type=ANY_TEXT, since=10)
ONE = Query((_USER,), closed_since=75)
LIST = Query(
    (_USER, Parameter(name="limit", type=COUNT, since=35), Parameter(name="marker", type=ANY_TEXT, since=35)),
    closed_since=75,
)

_LISTED: tuple[Field, ...] = (
    shown("name", TEXT),
    shown("public_key", TEXT),
    shown("fingerprint", TEXT),
    shown("type", TYPES, since=2),
)
_NOTHING = Constant(value=None)

LISTED = AnswerShape(
    fields(
        shown("keypairs", Array(item=fields(shown("keypair", fields(*_LISTED))))),
        shown("keypairs_links", LINKS, since=35, required=False),
    )
)
SHOWN = AnswerShape(
    fields(
        shown(
            "keypair",
            fields(
                *_LISTED,
                shown("user_id", TEXT),
                shown("id", INTEGER),
                shown("created_at", TEXT),
                shown("deleted", YES_NO),
                shown("deleted_at", _NOTHING),
                shown("updated_at", _NOTHING),
            ),
        )
    )
)
CREATED = AnswerShape(
    fields(
        shown(
            "keypair",
            fields(*_LISTED, shown("user_id", TEXT), shown("private_key", TEXT, until=GENERATED_UNTIL, required=False)),
        )
    )
)
