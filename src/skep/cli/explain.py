"""Decision records in words: what `skep server explain` and `skep demo` print. Pure: an answer in, text out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from skep.cli.output import counted
from skep.domain.clock import SECOND, parse_iso

_IN_FAULT = ("ERROR", "DELETED", None)
"""Statuses under which users see the fault of a server, and of a record that has none: as in Nova."""

_NOWHERE = ("no_valid_host", "refused")
"""Outcomes of attempts that were on no host."""

UNTOLD = "Error"
"""What stands for the reason of a failure where none is known: actions of before 0.8."""

SHOWN_HOSTS = 5
"""Hosts named in one line; the rest is counted."""

SHOWN_MISSES = 5
"""As many as an explanation holds by default."""

_NOT_WEIGHED = "not weighed: no other was left"
_EQUAL = 1e-9
"""By how much sums of the same scores may differ."""
NOT_THE_BEST = (
    "of several schedulers each chooses the best of its own share (`partition`); or `host_subset_size` is above 1"
)
"""Why a host may be chosen that is not the best."""

Record = Mapping[str, Any]


def text(placement: Record) -> str:
    """Return everything that is known of where a server is and how it came there, in the order in which it happened."""
    # A record of a release before 0.8 has no actions.
    done = placement.get("actions", ())
    story = [*((one["started_at"], 1, _attempt(one, done)) for one in placement["attempts"])]
    busy = done[-1]["request_id"] if done and placement["task_state"] else None
    for one in done:
        creates, goes_on = one["action"] == "create", one["request_id"] == busy
        told = _create(one, placement) if creates else action(one, under_way=goes_on)
        story.append((one["started_at"], 0, told))
    # Attempts of other cells come first, and those of one moment stay in their order.
    return "\n".join([*_head(placement), *(line for _, _, lines in sorted(story, key=_place) for line in lines)])


def _place(told: tuple[str, int, Iterator[str]]) -> tuple[str, int]:
    return told[0], told[1]


def action(done: Record, *, under_way: bool = False) -> Iterator[str]:
    """Return what came of an action, event by event, and of the moves that it led to."""
    yield ""
    yield f"Action {done['action']} ({done['request_id']}): {'under way' if under_way else _result(done)}"
    yield f"  at {done['started_at']}, by user {done['user_id'] or '-'}"
    if not any(one.get("details") for one in done["events"]) and done["message"] not in (None, UNTOLD):
        yield f"  {done['message']}"
    yield from (f"  {event(one)}" for one in done["events"])
    for move in done["migrations"]:
        way = f" from {move['source'] or '-'} to {move['destination'] or '-'}" if "source" in move else ""
        yield f"  {move['type']} {move['id']}{way}: {move['status']}"


def _create(done: Record, placement: Record) -> Iterator[str]:
    """Return what is known of a create; its attempts, which follow, say what became of it."""
    built = _built_at(placement)
    said = f": done after {_seconds(done['started_at'], built)}" if built else ""
    yield ""
    yield f"Action create ({done['request_id']}){said}"
    yield f"  at {done['started_at']}, by user {done['user_id'] or '-'}"


def _built_at(placement: Record) -> str | None:
    """Return when the build of a server was done, whatever was done later; None where it is not known."""
    builds = (one.get("built_at") for one in placement["attempts"] if one.get("role", "build") == "build")
    return next((str(one) for one in builds if one), None)


def _result(done: Record) -> str:
    if done["updated_at"] is None:
        return "under way"
    said = "failed" if done["message"] else "done"
    return f"{said} after {_seconds(done['started_at'], done['updated_at'])}"


def event(told: Record) -> str:
    """Return one event of an action in a line."""
    where = f" on {told['host']}" if told.get("host") else ""
    why = f": {told['details']}" if told.get("details") else ""
    return f"{told['event']}{where}: {told['result'] or 'under way'}{why}"


def reason(placement: Record) -> str:
    """Return in one line why a server is where it is (or nowhere): for tables."""
    if placement.get("fault"):
        return str(placement["fault"])
    tried = placement["attempts"]
    failed = [f"{one.get('host')}: {one.get('error') or one['outcome']}" for one in tried if one["outcome"] == "failed"]
    chosen = _chosen(tried[-1]["explanation"]) if tried and tried[-1]["explanation"] else ""
    return "; then ".join(part for part in (f"failed on {', '.join(failed)}" if failed else "", chosen) if part)


def _chosen(found: Record) -> str:
    """Say among how many a host was the best."""
    considered = found["considered"]
    left = found["stages"][-1]["left"] if found["stages"] else considered
    return f"best of {considered}" if left == considered else f"best of {left} left of {considered}"


def _head(placement: Record) -> Iterator[str]:
    yield f"Server {placement['name'] or '?'} ({placement['server']}): {_status(placement)}"
    if placement["asks_for"]:
        yield f"  asks for {amounts(placement['asks_for'])} (flavor {placement['flavor']})"
    yield f"  {_whereabouts(placement)}"
    launched = _built_at(placement) or placement["launched_at"]
    if placement["created_at"] and launched:
        yield f"  running {_seconds(placement['created_at'], launched)} after it was asked for"
    if placement["fault"] and placement["status"] in _IN_FAULT:
        yield f"  {_fault(placement)}"
    if placement.get("fault_details") and not any(one["explanation"] for one in placement["attempts"]):
        yield f"  {placement['fault_details']}"
    if placement.get("more_actions"):
        yield f"  its newest {counted(len(placement['actions']), 'action')} are told; there are earlier ones"


def _fault(placement: Record) -> str:
    """Return the fault without what the attempts say below, line by line."""
    fault = str(placement["fault"])
    for found in (record["explanation"] for record in placement["attempts"] if record["explanation"]):
        for said in (f"for the next one: {found['summary']}", found["summary"], found.get("advice")):
            fault = fault.replace(said, "") if said else fault
    return fault.rstrip("; :")


def _status(placement: Record) -> str:
    if placement["deleted"]:
        return "deleted"
    task = placement["task_state"]
    return f"{placement['status'] or 'no longer in its cell'}{f' ({task})' if task else ''}"


def _whereabouts(placement: Record) -> str:
    if placement["waiting"]:
        return "waits for a host; no decision has been recorded yet"
    if "cell" not in placement:
        tried = placement["attempts"]
        nowhere = tried and tried[-1]["outcome"] in _NOWHERE
        return f"is in zone {placement['zone'] or '-'}" if not nowhere else "is on no host"
    if placement["host"] is None:
        return f"is on no host; its record is kept in {placement['cell']}"
    return f"is on {placement['host']} in cell {placement['cell']}, zone {placement['zone'] or '-'}"


def _attempt(record: Record, actions: Sequence[Record]) -> Iterator[str]:
    where = f" on {record['host']}" if record.get("host") else ""
    yield ""
    yield f"Attempt {record['attempt']}{_purpose(record, actions)}{where}: {_outcome(record)}"
    if not record.get("built_at") and (record.get("error") or record.get("message")):
        yield f"  {': '.join(part for part in (record.get('error'), record.get('message')) if part)}"
    if record["explanation"]:
        yield from (f"  {line}" for line in explanation(record["explanation"]))


def _purpose(record: Record, actions: Sequence[Record]) -> str:
    """Say what an attempt is for that is no build: the action that was under way when it began."""
    role = record.get("role", "build")
    if role == "build":
        return ""
    begun = [one["action"] for one in actions if one["started_at"] <= record["started_at"]]
    return f" ({begun[-1] if begun else role.replace('_', ' ')})"


def _outcome(record: Record) -> str:
    if record["under_way"]:
        return "under way"
    if record.get("built_at"):
        since = "" if record["outcome"] == "built" else f", {str(record['outcome']).replace('_', ' ')} since"
        return f"built after {_seconds(record['started_at'], record['built_at'])}{since}"
    said = str(record["outcome"] or "over").replace("_", " ")
    if record["ended_at"] is None or record["outcome"] in _NOWHERE:
        return said
    return f"{said} after {_seconds(record['started_at'], record['ended_at'])}"


def explanation(found: Record) -> Iterator[str]:
    """Return how a decision came about.

    Stage by stage; the nearest misses, what would fit and whether it ever could; who was rejected by what; the best.
    """
    if found.get("beside"):
        others = counted(found["beside"], "other server")
        yield f"counted for the server of this request that found no host after {others} had found one:"
    yield f"{counted(found['considered'])} considered"
    for stage in found["stages"]:
        yield f"{stage['left']:>5} left by {stage['stage']}"
        if not stage["left"]:
            break  # nobody is left for those that come after it
    yield from _near_misses(found["nearest"][:SHOWN_MISSES], found.get("near", len(found["nearest"])))
    if found.get("advice"):
        yield from str(found["advice"]).split("; ")
    by_stage: dict[str, list[str]] = {}
    for host, stage in found.get("rejected", {}).items():
        by_stage.setdefault(stage, []).append(host)
    for stage, hosts in by_stage.items():
        yield f"rejected by {stage}: {_some(sorted(hosts))}"
    yield from _weighed(found)


def _weighed(found: Record) -> Iterator[str]:
    """Say what the chosen host and its alternates were ranked by, and which weighers made the difference."""
    worth = dict(list(found.get("contributions", {}).items())[:SHOWN_HOSTS])
    if not worth:
        # A record of a release that did not tell of multipliers.
        for host, parts in list(found.get("scores", {}).items())[:SHOWN_HOSTS]:
            yield f"scores of {host}, before their multipliers: {_each(parts) or _NOT_WEIGHED}"
        return
    first = next(iter(worth.values()))
    same = {
        name: score
        for name, score in first.items()
        if len(worth) > 1 and all(parts.get(name) == score for parts in worth.values())
    }
    for host, parts in worth.items():
        if not parts:
            yield f"weight of {host}: {_NOT_WEIGHED}"
            continue
        differing = {name: score for name, score in parts.items() if name not in same}
        each = _each(dict(sorted(differing.items(), key=lambda item: -abs(item[1]))))
        yield f"weight of {host}: {found['sums'][host]:.6g}{f' ({each})' if each else ''}"
    sums = [found["sums"][host] for host, parts in worth.items() if parts]
    outweighed = bool(first and sums[0] < max(sums) - _EQUAL)
    if found.get("preferred"):
        although = "chosen although others weigh more" if outweighed else "chosen before its weight counted"
        yield f"  {although}: alternates of the first decision are preferred"
    elif outweighed:
        yield f"  chosen although others weigh more: {NOT_THE_BEST}"
    if same:
        yield f"  the same for all of these: {_each(same)}"
    if len(worth) > 1 and len({found["sums"][host] for host in worth}) == 1:
        yield "  equal weights: a hash decides, so that equal servers spread"


def _each(parts: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {score:.4g}" for name, score in parts.items())


def _near_misses(nearest: Sequence[Record], near: int) -> Iterator[str]:
    """Say what each lacks; those that lack the same in one line. `near`: how many there are in all."""
    alike: dict[str, list[Record]] = {}
    for miss in nearest:
        what = f"lacks {amounts(miss['lacks'])}" if miss["lacks"] else f"fails only on {miss['stage']}"
        what += f" ({miss['cause']})" if miss.get("cause") else ""
        alike.setdefault(what, []).append(miss)
    for what, misses in alike.items():
        names = [miss["host"] for miss in misses if "host" in miss]
        if len(misses) == 1:
            yield f"near miss: {names[0] if names else 'a host'} {what}"
        else:
            yield f"near misses, each {what}: {', '.join(names) or counted(len(misses))}"
    more = near - len(nearest)
    if more > 0:
        yield f"and {more} more fail{'s' if more == 1 else ''} on one thing only"


def amounts(resources: Mapping[str, int]) -> str:
    """Return resources as `1 VCPU, 512 MEMORY_MB`."""
    return ", ".join(f"{amount} {name}" for name, amount in resources.items()) or "nothing"


def _some(hosts: Sequence[str]) -> str:
    more = len(hosts) - SHOWN_HOSTS
    return ", ".join(hosts[:SHOWN_HOSTS]) + (f" and {more} more" if more > 0 else "")


def _seconds(begin: str, end: str) -> str:
    return f"{(parse_iso(end) - parse_iso(begin)) / SECOND:.2f} s"
