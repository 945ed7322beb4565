"""The table of event types in docs/events.md: `python -m skep.api.events_page docs/events.md` writes it there."""

from __future__ import annotations

import sys
from pathlib import Path

from skep.api.marked_pages import replaced
from skep.domain.server_events import TABLE

BEGIN, END = "<!-- types of events: made by skep.api.events_page -->", "<!-- end of types of events -->"


def render() -> str:
    """Return the table."""
    rows = ["| type | when | data | data for operators only |", "|---|---|---|---|"]
    for row in TABLE:
        data, hidden = (", ".join(f"`{name}`" for name in names) or "-" for names in (row.data, row.hidden))
        rows.append(f"| `{row.name}` | {row.when} | {data} | {hidden} |")
    return "\n".join(rows)


def written_into(page: str) -> str:
    """Return a page with the table between its marks. Raises ValueError where it has no marks."""
    return replaced(page, BEGIN, END, render())


if __name__ == "__main__":
    name = Path(sys.argv[1])
    name.write_text(written_into(name.read_text(encoding="utf-8")), encoding="utf-8")
