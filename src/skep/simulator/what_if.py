"""What another policy would have decided, each time on what the scheduler knew at that moment.

Every decision stands for itself: after it what was recorded counts, so that all of them are asked about the cloud as it
was. What would have become of the cloud says a simulation of the log as a trace.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from skep.domain.ids import NodeUuid
from skep.placement.settings import SchedulerSettings
from skep.scheduler.decision_log.entries import Found, Header, LoggedAnswer
from skep.scheduler.decision_log.reading import entries, segments
from skep.simulator.policies import SimulatedPolicy
from skep.simulator.replay import ReplayCounts, Told


@dataclass(slots=True)
class Comparison(ReplayCounts):
    """How a policy's decisions differ from those that are recorded."""

    policy: SimulatedPolicy | None = None
    found: int = 0
    """Times that an attempt had its claim already: no decisions."""
    same_host: int = 0
    other_host: int = 0
    refused_by_both: int = 0
    refused_only_as_recorded: int = 0
    refused_only_by_policy: int = 0

    @property
    def differing(self) -> int:
        """Decisions that would have come out otherwise."""
        return self.other_host + self.refused_only_as_recorded + self.refused_only_by_policy

    @property
    def refused_as_recorded(self) -> int:
        """Decisions that found no host, or could not be made, when they were recorded."""
        return self.refused_by_both + self.refused_only_as_recorded

    @property
    def refused_by_policy(self) -> int:
        """Likewise under the policy."""
        return self.refused_by_both + self.refused_only_by_policy

    def settings(self, recorded: SchedulerSettings) -> SchedulerSettings:
        """Return the policy's; what is not about choosing remains as it was."""
        if self.policy is None:
            return recorded
        return msgspec.structs.replace(
            self.policy.settings,
            seed=recorded.seed,
            partition=recorded.partition,
            beat_lapse_seconds=recorded.beat_lapse_seconds,
            host=recorded.host,
        )

    def judge(self, told: Told, recorded: LoggedAnswer, replayed: LoggedAnswer) -> None:
        """Compare the hosts alone."""
        self.count(told)
        before, now = _node(recorded), _node(replayed)
        if before == now:
            self.same_host += before is not None
            self.refused_by_both += before is None
            return
        self.other_host += before is not None and now is not None
        self.refused_only_as_recorded += before is None
        self.refused_only_by_policy += now is None
        self.differ(told, recorded, replayed)

    def judge_found(self, told: Told, recorded: Found, replayed: Found | None) -> None:  # noqa: ARG002  # as in every tally
        """Nothing is decided about an attempt that has its claim."""
        self.found += 1


def _node(answer: LoggedAnswer) -> NodeUuid | None:
    return answer.claim.node if answer.claim is not None else None


def recorded_settings(path: Path) -> SchedulerSettings:
    """Return the settings under which the last segment of a log was recorded. Raises as reading does."""
    header = next(entries(segments(path)[-1]))
    assert isinstance(header, Header)
    return header.settings
