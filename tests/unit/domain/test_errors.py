"""The tree of errors is what its docstring draws."""

from __future__ import annotations

import inspect
import re

from skep.domain import errors
from skep.domain.errors import Overloaded, SkepError, Unavailable


def test_every_class_is_drawn_and_nothing_else() -> None:
    classes = {
        name: found for name, found in vars(errors).items() if inspect.isclass(found) and issubclass(found, SkepError)
    }
    drawn = re.findall(r"^(?:[│ ]*[├└]── )?([A-Z][A-Za-z]+)(?:$|\s{2,})", errors.__doc__ or "", re.MULTILINE)
    assert sorted(drawn) == sorted(classes)


def test_who_may_try_again_is_told_when() -> None:
    assert Unavailable.retry_after == 1
    assert Overloaded.retry_after > Unavailable.retry_after
