"""Types that many nouns use."""

from __future__ import annotations

from skep.api.microversions import MAXIMUM, MINIMUM
from skep.api.schemas.fields import (
    REQUEST,
    RESPONSE,
    Array,
    Boolean,
    Direction,
    Field,
    Integer,
    Map,
    Number,
    Object,
    String,
    Type,
    fields,
)
from skep.api.schemas.validation import Parameter
from skep.domain.wording import UNSEEN

MAX_INT = 0x7FFFFFFF
"""Nova's largest integer in a database column."""

# Text in answers: what is stored is shown, so nothing more is promised about it.
TEXT = String()
TEXT_OR_NULL = String(nullable=True)
INTEGER = Integer()
INTEGER_OR_NULL = Integer(nullable=True)
NUMBER = Number()
YES_NO = Boolean()

VISIBLE = rf"[^{UNSEEN}]"
"""A character that can be seen (or is a space)."""
SOLID = rf"[^\s{UNSEEN}]"
"""A character that can be seen and is no space."""
NAME = String(
    min=1,
    max=255,
    pattern=rf"^(?:{SOLID}|{SOLID}{VISIBLE}*{SOLID})$",
    description="printable, without spaces at either end",
)
UUID = String(format="uuid")
TIMESTAMP = String(format="date-time")

METADATA_KEY = r"^[a-zA-Z0-9_:. -]{1,255}$"
METADATA = Map(value=String(max=255), key_pattern=METADATA_KEY)
EXTRA_SPECS = Map(value=String(max=255), key_pattern=METADATA_KEY)

LINKS = Array(
    item=Object(
        (
            Field(name="rel", type=TEXT),
            Field(name="href", type=TEXT),
            Field(name="type", type=TEXT, required=False),
        ),
        exact=True,
    )
)


def asked(
    name: str, kind: Type, *, since: int = MINIMUM, until: int = MAXIMUM, required: bool = False, secret: bool = False
) -> Field:
    """Describe a key of a request."""
    return Field(name=name, type=kind, since=since, until=until, required=required, secret=secret, direction=REQUEST)


def shown(name: str, kind: Type, *, since: int = MINIMUM, until: int = MAXIMUM, required: bool = True) -> Field:
    """Describe a key of an answer; one with `required=False` is left out where there is nothing to say."""
    return Field(name=name, type=kind, since=since, until=until, required=required, direction=RESPONSE)


def one(name: str, kind: Type, direction: Direction) -> Type:
    """Describe a body with one key: `{"flavor": {...}}`."""
    return fields(Field(name=name, type=kind, required=True, direction=direction))


def page_links(collection: str) -> Field:
    """Describe the links of a page (`servers_links`), there only when another page follows."""
    return shown(f"{collection}_links", LINKS, required=False)


# Values in a query are text.
COUNT = String(pattern="^[0-9]+$")
ANY_TEXT = String()
PAGING = (Parameter(name="limit", type=COUNT), Parameter(name="marker", type=ANY_TEXT))
