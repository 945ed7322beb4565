"""Patterns of names and texts in bodies."""

from __future__ import annotations

from skep.domain.wording import UNSEEN

LINE = rf"^[^{UNSEEN}]*\Z"
"""A line holds no character that cannot be seen, but for spaces."""
NAME = rf"^[^{UNSEEN}]*[^\s{UNSEEN}][^{UNSEEN}]*\Z"
"""A name is a line that is not all spaces."""
TEXT = r"^[^\x00]*\Z"
"""A text holds no NUL."""
