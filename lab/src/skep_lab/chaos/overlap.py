"""How faults overlap."""

from __future__ import annotations


class Overlap:
    """Counts how many of its blocks are entered at one moment."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self.beside = 0
        """How many were entered while there was another."""

    def __enter__(self) -> None:
        self.beside += self.now > 0
        self.now += 1
        self.most = max(self.most, self.now)

    def __exit__(self, *_: object) -> None:
        self.now -= 1
