"""Who hears the hosts of a cell: the latest beat of each of its conductors, and what they say together.

Any number of conductors serve a cell, and a host's heartbeat reaches one of them at a time. So a host is heard when any
living beat names it, and silent only when all of them omit it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from skep.domain.ids import CellUuid, NodeUuid

FORGET_AFTER = 6
"""A beat that has not changed for so many times its lapse is that of a conductor which is gone."""


@dataclass(slots=True)
class _Beat:
    heard: tuple[NodeUuid, ...]
    at: int
    changed: float | None
    """The monotonic clock when it was seen to change; None when its age is not known (found in a snapshot)."""
    listening: bool = False
    """It has only begun to listen: whom it omits may live all the same."""
    found: float | None = None
    """The monotonic clock when one of unknown age was first looked at."""


class BeatState(msgspec.Struct, frozen=True, array_like=True):
    """All that is known of the beat of one conductor, to be kept and taken again."""

    cell: CellUuid
    conductor: str
    heard: tuple[NodeUuid, ...]
    at: int
    changed: float | None
    found: float | None
    listening: bool
    living: bool


class Beats:
    """The beats of all cells. Times are seconds of a monotonic clock, `at` is microseconds since the epoch."""

    def __init__(self, lapse: float) -> None:
        self._lapse = lapse
        self._beats: dict[CellUuid, dict[str, _Beat]] = {}
        self._living: dict[CellUuid, set[str]] = {}

    def take(
        self,
        cell: CellUuid,
        conductor: str,
        heard: tuple[NodeUuid, ...],
        at: int,
        now: float | None,
        *,
        listening: bool = False,
    ) -> bool:
        """Take the beat of one conductor. `now`: when it changed; None where its age is not known.

        Return whether it says more than that the conductor still lives. Whoever hears the same nodes as before hands
        over the same tuple.
        """
        beats, living = self._beats.setdefault(cell, {}), self._living.setdefault(cell, set())
        before = beats.get(conductor)
        beats[conductor] = _Beat(heard, at, now, listening)
        same = before is not None and before.heard is heard and before.listening == listening and conductor in living
        if now is not None:
            living.add(conductor)
        return not same

    def correct(self, cell: CellUuid, conductor: str, heard: tuple[NodeUuid, ...], *, listening: bool) -> bool:
        """Set whom the latest beat of a conductor names, not when it came; tell whether there is such a beat."""
        beat = self._beats.get(cell, {}).get(conductor)
        if beat is None:
            return False
        beat.heard, beat.listening = heard, listening
        return True

    def drop(self, cell: CellUuid, conductor: str) -> None:
        """Forget a beat."""
        self._beats.get(cell, {}).pop(conductor, None)
        self._living.get(cell, set()).discard(conductor)

    def observe(self, now: float) -> list[CellUuid]:
        """Let the beats lapse that have not changed for too long; return the cells of which fewer live than before."""
        fewer = []
        for cell, beats in self._beats.items():
            for beat in beats.values():
                if beat.changed is None and beat.found is None:
                    beat.found = now
            lapsed = {name for name in self._living[cell] if self._age(beats[name], now) > self._lapse}
            if lapsed:
                self._living[cell] -= lapsed
                fewer.append(cell)
        return fewer

    def is_living(self, cell: CellUuid) -> bool:
        """Tell whether any conductor of the cell beats that has listened for long enough."""
        return any(not self._beats[cell][name].listening for name in self._living.get(cell, ()))

    def heard(self, cell: CellUuid) -> tuple[tuple[NodeUuid, ...], int]:
        """Return the nodes that the living conductors hear, and when the latest said so.

        When none lives: what the last ones said, which is then of no age that could be trusted.
        """
        beats = self._beats.get(cell, {})
        counted = [beats[name] for name in self._living.get(cell, ())] or list(beats.values())
        nodes = dict.fromkeys(node for beat in counted for node in beat.heard)
        return tuple(nodes), max((beat.at for beat in counted), default=0)

    def latest(self, cell: CellUuid) -> int:
        """Return when a conductor of the cell beat last, microseconds since the epoch."""
        return max((beat.at for beat in self._beats.get(cell, {}).values()), default=0)

    def gone(self, cell: CellUuid, now: float) -> list[str]:
        """Return the conductors of a cell that have been silent for so long that they are no more."""
        beats = self._beats.get(cell, {})
        return [name for name, beat in beats.items() if self._age(beat, now) > self._lapse * FORGET_AFTER]

    def states(self) -> tuple[BeatState, ...]:
        """Return all that is known, for `restore`."""
        return tuple(
            BeatState(
                cell,
                conductor,
                beat.heard,
                beat.at,
                beat.changed,
                beat.found,
                beat.listening,
                conductor in self._living.get(cell, ()),
            )
            for cell, beats in self._beats.items()
            for conductor, beat in beats.items()
        )

    def restore(self, states: Iterable[BeatState]) -> set[CellUuid]:
        """Know what was known when `states` were returned, and nothing else; return the cells that they tell of."""
        self._beats.clear()
        self._living.clear()
        for state in states:
            beat = _Beat(state.heard, state.at, state.changed, state.listening, state.found)
            self._beats.setdefault(state.cell, {})[state.conductor] = beat
            living = self._living.setdefault(state.cell, set())
            if state.living:
                living.add(state.conductor)
        return set(self._beats)

    @staticmethod
    def _age(beat: _Beat, now: float) -> float:
        since = beat.changed if beat.changed is not None else beat.found
        return 0.0 if since is None else now - since
