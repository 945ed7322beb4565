"""Consoles of servers (Nova's API reference, "Consoles", "Console auth tokens")."""

from __future__ import annotations

from skep.api.microversions import MAXIMUM
from skep.api.schemas.fields import String, fields
from skep.api.schemas.shared import INTEGER, INTEGER_OR_NULL, TEXT, TEXT_OR_NULL, asked, shown
from skep.api.schemas.validation import AnswerShape, Body
from skep.domain.consoles import KINDS

REMOTE_SINCE, ACTIONS_LAST = 6, 5
DETAILS_SINCE = 31
"""Microversion from which the token of any console is explained."""


def _words(version: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    known = [(protocol, kind) for kind, (protocol, since) in KINDS.items() if since <= version]
    return tuple(dict.fromkeys(protocol for protocol, _ in known)), tuple(kind for _, kind in known)


_STARTS = sorted({since for _, since in KINDS.values()})
CREATE = Body(
    fields(
        asked(
            "remote_console",
            fields(
                *(
                    asked(name, String(choices=_words(start)[which]), since=start, until=end, required=True)
                    for start, end in zip(_STARTS, [*(one - 1 for one in _STARTS[1:]), MAXIMUM], strict=True)
                    for which, name in enumerate(("protocol", "type"))
                )
            ),
            required=True,
        )
    )
)
"""`POST /servers/{id}/remote-consoles`."""

CREATED = AnswerShape(
    fields(shown("remote_console", fields(shown("protocol", TEXT), shown("type", TEXT), shown("url", TEXT))))
)

BY_ACTION: dict[str, tuple[str, ...]] = {
    "os-getVNCConsole": ("novnc", "xvpvnc"),
    "os-getSPICEConsole": ("spice-html5",),
    "os-getRDPConsole": ("rdp-html5",),
    "os-getSerialConsole": ("serial",),
}
"""Action of clients of before 2.6 -> the kinds of consoles that it may ask for."""


def action_body(key: str) -> Body:
    """Return the description of an action's body."""
    kind = String(choices=BY_ACTION[key])
    return Body(fields(asked(key, fields(asked("type", kind, required=True)), required=True)))


GIVEN = AnswerShape(fields(shown("console", fields(shown("type", TEXT), shown("url", TEXT)))))
"""Of the actions."""

TOKEN = AnswerShape(
    fields(
        shown(
            "console",
            fields(
                shown("instance_uuid", TEXT),
                shown("host", TEXT_OR_NULL),
                shown("port", INTEGER),
                shown("tls_port", INTEGER_OR_NULL, since=99),
                shown("internal_access_path", TEXT_OR_NULL),
            ),
        )
    )
)
"""`GET /os-console-auth-tokens/{token}`."""
