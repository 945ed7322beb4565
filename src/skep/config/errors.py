"""What is wrong with a configuration, all of it at once."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from skep.domain.errors import Misconfigured


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong: which key, where it was said, what about it."""

    key: str
    where: str
    message: str

    def __str__(self) -> str:
        """Reads like `api.port: expected int, got str 'eighty' (SKEP_API__PORT)`."""
        return f"{self.key}: {self.message} ({self.where})"


class ConfigError(Misconfigured):
    """The configuration cannot be used; `problems` names every reason, the text joins them line by line."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)
