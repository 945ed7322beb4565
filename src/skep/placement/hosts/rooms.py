"""What is left of the inside of each host, and whether it is enough for a request.

Whether a request fits depends on counts, not on which CPUs are free. For most requests counting is all there is to do
(`domain/nested/counting.py`). Else hosts of one layout with equal counts share the answer that a search has found.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import numpy as np

from skep.domain.hosts import HostUsage
from skep.domain.nested.counting import Counting, counting_of
from skep.domain.nested.fitting import allocate, ways_to_allocate
from skep.domain.nested.layout import Layout
from skep.domain.nested.room import Room, RoomKey, room_of
from skep.domain.nested.wanted import Wanted
from skep.domain.providers import Allocation
from skep.placement.hosts.columns import Mask

HolderKey = tuple[str, int]
"""(instance, attempt)"""
MOST_CONDITIONS = 200_000
"""Different conditions of hosts that are remembered; beyond it they are forgotten, and worked out anew."""

MOST_REQUESTS = 1_000
"""Different requests of which answers are remembered."""
MOST_IMAGINED = 100
"""Different requests that nobody makes, of which answers are remembered."""
MOST_ANSWERS = 1_000_000
"""Of all requests together, about as many bytes times a hundred: users choose what they ask for."""
_COUNTING = 10
"""How a request is counted on hosts of one layout takes as much as so many answers."""


class Worked:
    """How much is remembered of all requests together. Beyond `MOST_ANSWERS` all of it is to be forgotten."""

    __slots__ = ("_forget", "amount")

    def __init__(self, forget: Callable[[], None]) -> None:
        self.amount = 0
        self._forget = forget

    def add(self, amount: int = 1) -> None:
        """Make room for so much more, and count it."""
        if self.amount >= MOST_ANSWERS:
            self._forget()
        self.amount += amount


class Answers:
    """What is known of one request."""

    __slots__ = ("_countings", "_of_empty", "_worked", "asked", "by_condition")

    def __init__(self, asked: Wanted, worked: Worked) -> None:
        self.asked = asked
        self.by_condition: dict[int, bool] = {}
        """Whether a host fits, by the number of its condition; where counting does not tell."""
        self._countings: dict[Layout, Counting | None] = {}
        self._of_empty: dict[Layout, bool] = {}
        self._worked = worked

    def of_empty(self, layout: Layout) -> bool:
        """Tell whether a host of this layout fits if nothing of its inside is taken."""
        answer = self._of_empty.get(layout)
        if answer is None:
            self._worked.add()
            counting, room = self.counting(layout), Room(layout)
            fits = counting.fits(room) if counting is not None else allocate(room, self.asked) is not None
            answer = self._of_empty[layout] = fits
        return answer

    def counting(self, layout: Layout) -> Counting | None:
        """Return how to count on hosts of this layout; None where that is not enough."""
        if layout in self._countings:
            return self._countings[layout]
        self._worked.add(_COUNTING)
        made = self._countings[layout] = counting_of(self.asked, layout)
        return made

    def forget(self) -> None:
        """Work out everything anew."""
        self.by_condition.clear()
        self._countings.clear()
        self._of_empty.clear()


class Rooms:
    """The inside of the hosts that have told of it, by row of the table. Other hosts cost nothing."""

    def __init__(self) -> None:
        self._usage: dict[int, HostUsage] = {}
        self.has_told: Callable[[int], bool] = self._usage.__contains__
        """Whether a row has told of its inside."""
        self._held: dict[int, dict[HolderKey, Allocation]] = {}
        self._rooms: dict[int, Room] = {}
        self._conditions: dict[int, int] = {}
        """By row, the number of its condition."""
        self._numbers: dict[tuple[Layout, RoomKey], int] = {}
        self._answers: dict[Wanted, Answers] = {}
        self._imagined: dict[Wanted, Answers] = {}
        """The same of requests that nobody makes: they take no place from those that are made."""
        self._layouts: dict[int, Layout] = {}
        """By row: a host that reports again most often has the same inside."""
        self._worked = Worked(self._forget_answers)
        self._told: Mask = np.zeros(0, dtype=np.bool_)

    def set_usage(self, row: int, usage: HostUsage) -> None:
        """Take what a host reported."""
        if usage.topology is None:
            if row in self._usage:
                self.drop(row)
            return
        self._usage[row] = usage
        self._forget(row)
        if row >= len(self._told):
            grown = np.zeros(2 * row + 16, dtype=np.bool_)
            grown[: len(self._told)] = self._told
            self._told = grown
        self._told[row] = True

    def drop(self, row: int) -> None:
        """Forget what a host reported. What is claimed on it stays."""
        self._layouts.pop(row, None)
        if self._usage.pop(row, None) is not None:
            self._told[row] = False
            self._forget(row)

    def hold(self, row: int, key: HolderKey, allocation: Allocation) -> None:
        """Count what is promised to an attempt of a server."""
        self._held.setdefault(row, {})[key] = allocation
        room = self._rooms.get(row)
        if room is not None:
            room.take(allocation)
            self._conditions.pop(row, None)

    def release(self, row: int, key: HolderKey) -> None:
        """Count it no longer."""
        held = self._held.get(row, {})
        allocation = held.pop(key, None)
        if allocation is None:
            return
        if not held:
            del self._held[row]
        room = self._rooms.get(row)
        if room is not None and room.exact:
            room.give_back(allocation)
            self._conditions.pop(row, None)
        else:
            self._forget(row)

    def told(self, size: int) -> Mask:
        """Return which of the first `size` rows have told of their inside."""
        if len(self._told) < size:
            self._told = np.concatenate((self._told, np.zeros(2 * size - len(self._told), dtype=np.bool_)))
        return self._told[:size]

    def room(self, row: int) -> Room | None:
        """Return what is left; None of a host that has not told of its inside. Callers must not change it."""
        room = self._rooms.get(row)
        if room is None:
            usage = self._usage.get(row)
            if usage is None:
                return None
            room = self._rooms[row] = room_of(usage, self._held.get(row, {}).values())
            self._layouts[row] = room.layout
        return room

    def devices(self, row: int) -> tuple[int, int]:
        """Return how many devices of a host are free, and how many it has."""
        room = self.room(row)
        if room is None or not room.providers:
            return 0, 0
        providers = room.providers.values()
        return sum(len(one.devices) for one in providers), sum(len(one.layout.provider.devices) for one in providers)

    def answers(self, asked: Wanted) -> Answers:
        """Return what is known of a request."""
        known = self._answers.get(asked)
        if known is None:
            if len(self._answers) >= MOST_REQUESTS:
                self._forget_answers()
                self._answers.clear()
            known = self._answers[asked] = Answers(asked, self._worked)
        return known

    def imagined(self, asked: Wanted) -> Answers:
        """Return what is known of a request that only an explanation thinks of."""
        known = self._imagined.get(asked)
        if known is None:
            if len(self._imagined) >= MOST_IMAGINED:
                self._imagined.clear()
            known = self._imagined[asked] = Answers(asked, self._worked)
        return known

    def fits(self, row: int, known: Answers) -> bool:
        """Tell whether a host that has told of its inside has room. `known`: of the request."""
        room = self._rooms.get(row) or self.room(row)
        if room is None:
            return False
        counting = known.counting(room.layout)
        if counting is not None:
            return counting.fits(room)
        return self._fits_somehow(row, known)

    def fits_if_empty(self, row: int, known: Answers) -> bool:
        """Tell whether a host that has told of its inside would have room if nothing of it were taken."""
        room = self.room(row)
        return room is not None and known.of_empty(room.layout)

    def _fits_somehow(self, row: int, known: Answers) -> bool:
        answers = known.by_condition
        number = self._conditions.get(row)
        if number is None:
            number = self._number(row)
        answer = answers.get(number)
        if answer is None:
            self._worked.add()
            room = self.room(row)
            answer = answers[number] = room is not None and allocate(room, known.asked) is not None
        return answer

    def servers(self, row: int, asked: Wanted, counted: dict[tuple[Layout, RoomKey], int], most: int) -> int | None:
        """Return how many such servers one host has room for, one after the other; None if it takes too long.

        `counted` keeps what was found, so that hosts in a condition that another was in cost nothing; it is not made
        larger than `most`.
        """
        usage = self._usage.get(row)
        if usage is None:
            return 0
        room = room_of(usage, self._held.get(row, {}).values())
        passed: list[tuple[Layout, RoomKey]] = []
        while (condition := (room.layout, room.key)) not in counted:
            if len(counted) + len(passed) >= most:
                return None
            allocation = allocate(room, asked)
            if allocation is None:
                counted[condition] = 0
                break
            passed.append(condition)
            room.take(allocation)
        last = counted[condition]
        counted.update((one, last + number) for number, one in enumerate(reversed(passed), 1))
        return last + len(passed)

    def allocate(self, row: int, asked: Wanted) -> Allocation | None:
        """Return which parts of the host a request gets; None where they are not there."""
        room = self.room(row)
        return None if room is None else allocate(room, asked)

    def ways(self, row: int, asked: Wanted, most: int) -> list[Allocation]:
        """Return the first so many ways in which a request could be served, beginning with that of `allocate`."""
        room = self.room(row)
        return [] if room is None else list(islice(ways_to_allocate(room, asked), most))

    def _number(self, row: int) -> int:
        room = self.room(row)
        assert room is not None
        if len(self._numbers) >= MOST_CONDITIONS:
            self._numbers.clear()
            self._conditions.clear()
            self._forget_answers()
        number = self._numbers.setdefault((room.layout, room.key), len(self._numbers))
        self._conditions[row] = number
        return number

    def _forget_answers(self) -> None:
        for known in (*self._answers.values(), *self._imagined.values()):
            known.forget()
        self._worked.amount = 0

    def _forget(self, row: int) -> None:
        self._rooms.pop(row, None)
        self._conditions.pop(row, None)
