"""The table of Nova's event types in docs/notifications.md, made from the one table of them.

`python -m skep.api.notifications_page docs/notifications.md` writes it between its marks.
"""

from __future__ import annotations

import sys
from pathlib import Path

from skep.api.marked_pages import replaced
from skep.domain.event_table import TABLE, EventType

BEGIN, END = "<!-- event types: made by skep.api.notifications_page -->", "<!-- end of event types -->"

NONE = "-"
SENT_HEAD = ("| event type | sent | Nova's only | when | unversioned |", "|---|---|---|---|---|")
UNSENT_HEAD = ("| event type | why not |", "|---|---|")


def render() -> str:
    """Return the table of what is sent, and the one of what is not."""
    sent = [_sent(row) for row in TABLE if row.sent]
    unsent = [f"| {_names(row, row.phases)} | {row.about} |" for row in TABLE if not row.sent]
    return "\n".join([*SENT_HEAD, *sent, "", "Not sent:", "", *UNSENT_HEAD, *unsent])


def _sent(row: EventType) -> str:
    nova = [phase for phase in row.phases if phase not in row.sent]
    sent = ", ".join(f"`.{phase}`" + ("" if phase in row.phases else " (Skep's own)") for phase in row.sent if phase)
    cells = (
        f"`{row.name}`",
        sent or "once",
        ", ".join(f"`.{phase}`" for phase in nova) or NONE,
        row.about,
        _unversioned(row),
    )
    return f"| {' | '.join(cells)} |"


def _names(row: EventType, phases: tuple[str, ...]) -> str:
    first, *others = phases
    return ", ".join([f"`{row.of(first)}`", *(f"`.{phase}`" for phase in others)])


def _unversioned(row: EventType) -> str:
    """Return the unversioned event types of the phases that are sent."""
    names = [row.unversioned[phase] for phase in row.sent if phase in row.unversioned]
    if not names:
        return NONE
    first, *others = names
    return ", ".join([f"`{first}`", *(f"`.{name.rpartition('.')[2]}`" for name in others)])


def written_into(page: str) -> str:
    """Return a page with the tables between its marks. Raises ValueError where it has no marks."""
    return replaced(page, BEGIN, END, render())


if __name__ == "__main__":
    name = Path(sys.argv[1])
    name.write_text(written_into(name.read_text(encoding="utf-8")), encoding="utf-8")
