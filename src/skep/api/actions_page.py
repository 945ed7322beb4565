"""The table of actions in docs/api.md, made from both tables of actions.

`python -m skep.api.actions_page docs/api.md` writes it between its marks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from skep.api.actions import ACTION_ROWS, GONE_ACTIONS, ActionRow
from skep.api.marked_pages import replaced
from skep.api.microversions import MAXIMUM, MINIMUM, text
from skep.domain import event_types
from skep.domain.actions import ACTIONS, ANY_TASK, Action
from skep.domain.instances import State
from skep.domain.states import stored, vm_state

BY_METHOD = {
    "soft_delete": "`DELETE`, reclaimed later",
    "delete": "`DELETE`, `forceDelete`",
    "attach_interface": "`POST .../os-interface`",
    "detach_interface": "`DELETE .../os-interface/ID`",
    "plug_interface": "`POST .../os-interface`, by a host that gives interfaces to guests",
    "unplug_interface": "`DELETE .../os-interface/ID`, likewise",
    "attach_volume": "`POST .../os-volume_attachments`",
    "plug_volume": "`POST .../os-volume_attachments`, by a host that connects volumes",
    "unplug_volume": "`DELETE .../os-volume_attachments/ID`, likewise",
    "detach_volume": "`DELETE .../os-volume_attachments/ID`",
    "swap_volume": "`PUT .../os-volume_attachments/ID`",
    "volume_snapshot_create": "`POST /os-assisted-volume-snapshots`",
    "volume_snapshot_delete": "`DELETE /os-assisted-volume-snapshots/ID`",
    "extend_volume": "the event `volume-extended`",
    "live_abort": "`DELETE .../migrations/ID`",
    "live_complete": "`force_complete` of a migration",
}
"""What asks for an action that has no key of its own."""

BEGIN, END = "<!-- actions: made by skep.api.actions_page -->", "<!-- end of actions -->"

NONE = "-"
HEAD = (
    "| key | policy rule | begins in | overrides | locked | becomes | instance action | driver needs | quota |",
    "|---|---|---|---|---|---|---|---|---|",
)


def render() -> str:
    """Return the table, and the list of what Nova has given up."""
    rows = [_line(_key(row), row.rule, ACTIONS[name]) for row in ACTION_ROWS for name in row.actions]
    rows.append(_line("`DELETE`, reclaimed later", "os_compute_api:servers:delete", ACTIONS["soft_delete"]))
    rows.append(_line("`DELETE`", "os_compute_api:servers:delete", ACTIONS["delete"]))
    gone = ", ".join(f"`{key}`" for key in sorted(GONE_ACTIONS))
    said = f"Given up by Nova, answered with 410: {gone}."
    return "\n".join([*HEAD, *rows, "", said, "", *_told()])


def _told() -> Iterator[str]:
    """Yield what is told of each action in Nova's versioned event types, and what of Nova's is not."""
    yield "Notifications of each action, in Nova's versioned event types and order (`.error` in place of the end):"
    yield ""
    yield "| action | sent | when it fails |"
    yield "|---|---|---|"
    keys = {name: _key(row) for row in reversed(ACTION_ROWS) for name in row.actions}
    for name, action in ACTIONS.items():
        cells = (
            keys.get(name) or BY_METHOD[name],
            _types(event_types.sent(action)),
            _types(event_types.sent_in_error(action)),
        )
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield "Not sent, unlike Nova:"
    yield ""
    for name, of_what in event_types.UNSENT.items():
        yield f"- `{name}`: {of_what}"


def _types(names: tuple[str, ...]) -> str:
    """Return event types in order; a start and its end in one word where they follow each other."""
    shown: list[str] = []
    for name in names:
        stem, _, when = name.rpartition(".")
        if when == "end" and shown and shown[-1] == f"{stem}.start":
            shown[-1] = f"{stem}.start, .end"
        else:
            shown.append(name)
    return ", ".join(f"`{one}`".replace(", .end`", "`, `.end`") for one in shown) or NONE


def written_into(page: str) -> str:
    """Return a page with the table between its marks. Raises ValueError where it has no marks."""
    return replaced(page, BEGIN, END, render())


def _key(row: ActionRow) -> str:
    since = f" since {text(row.since)}" if row.since != MINIMUM else ""
    until = f" until {text(row.until)}" if row.until != MAXIMUM else ""
    return f"`{row.key}`{since}{until}"


def _line(key: str, rule: str, action: Action) -> str:
    begins = "any" if action.begins_in is None else ", ".join(vm_state(one) for one in _in_order(action.begins_in))
    overrides = "any task" if action.overrides == ANY_TASK else ", ".join(sorted(action.overrides)) or NONE
    cells = (
        key,
        f"`{rule.removeprefix('os_compute_api:')}`",
        begins,
        overrides,
        "refused" if action.lock_refuses else "taken",
        vm_state(action.becomes) if action.becomes is not None else NONE,
        f"{action.record} (`{action.event}`)" if action.event is not None else action.record,
        f"`{action.capability}`" if action.capability is not None else NONE,
        action.quota or NONE,
    )
    return f"| {' | '.join(cells)} |"


def _in_order(states: frozenset[State]) -> list[State]:
    return [State(one) for one in stored(states)]


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(written_into(path.read_text()))
