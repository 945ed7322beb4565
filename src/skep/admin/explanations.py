"""Decision records as the admin API shows them: all of it for admins, no host's name for owners."""

from __future__ import annotations

from skep.admin.placement_answers import ShownAttempt, ShownExplanation, ShownMiss
from skep.domain.builds import AttemptRecord, Explanation, NearMiss
from skep.domain.clock import isoformat_micro


def attempt(record: AttemptRecord, *, admin: bool) -> ShownAttempt:
    """Return one attempt: how it went, and how its host was chosen."""
    view: ShownAttempt = {
        "attempt": record.attempt,
        "role": record.role,
        "outcome": record.outcome,
        "under_way": record.open and record.outcome is None,
        "started_at": isoformat_micro(record.started_at),
        "ended_at": isoformat_micro(record.ended_at) if record.ended_at is not None else None,
        "built_at": isoformat_micro(record.built_at) if record.built_at is not None else None,
        "explanation": explanation(record.explanation, admin=admin) if record.explanation else None,
    }
    if admin:
        # What a host says of its failure may name hosts, paths and users of it.
        view |= {
            "host": record.host,
            "node": record.node,
            "open": record.open,
            "error": record.error,
            "message": record.message,
        }
    return view


def explanation(found: Explanation, *, admin: bool) -> ShownExplanation:
    """Return how many hosts were left after each stage, what came closest, and what would fit."""
    view: ShownExplanation = {
        "summary": found.summary(),
        "considered": found.considered,
        "stages": [{"stage": stage.stage, "left": stage.left} for stage in found.stages],
        "nearest": [_near(miss, admin=admin) for miss in found.nearest],
        "near": max(found.near, len(found.nearest)),
        "beside": found.beside,
        "preferred": found.preferred,
        "verdict": found.verdict or None,
        "could_hold": found.could_hold,
        "not_reported": found.not_reported,
        "left_aside": list(found.left_aside),
        "changes": [{"parts": list(change.parts), "hosts": change.hosts} for change in found.changes],
        "advice": found.advice(),
    }
    if admin:
        worth = found.contributions()
        view |= {
            "rejected": found.rejected,
            "scores": found.scores,
            "contributions": worth,
            "sums": {host: sum(parts.values()) for host, parts in worth.items()},
        }
    return view


def _near(miss: NearMiss, *, admin: bool) -> ShownMiss:
    view: ShownMiss = {"stage": miss.stage, "lacks": miss.lacks}
    return {"host": miss.host, "node": miss.node, **view, "cause": miss.cause} if admin else view
