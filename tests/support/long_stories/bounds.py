"""Inner bounds of the engine, so small that a cloud of some ten hosts goes beyond each of them."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from types import ModuleType

from skep.placement import claims, spreading
from skep.placement.batch import foreseeing, merging, together
from skep.placement.explain import misses, refusals
from skep.placement.hosts import changelog, columns, levels
from skep.placement.ranking import order, ranking, shapes, standing

_SMALL: tuple[tuple[ModuleType, str, tuple[int, ...]], ...] = (
    (claims, "_FEW", (2,)),
    (spreading, "_MOST_SHAPES", (3,)),
    (merging, "_FEWEST_MET", (2,)),
    (merging, "_MOST_MET", (4,)),
    (together, "_MOST_PASSED", (5, 30)),
    (foreseeing, "_FIRST_STATES", (1, 2, 3)),
    # No pool is smaller than the number of near misses that are told.
    (misses, "_LEAST_POOL", (5,)),
    (misses, "_POOL_PART", (8,)),
    (refusals, "_MOST_SHAPES", (4,)),
    (changelog, "_FIRST_LENGTH", (16, 64, 1024)),
    (columns, "SCALAR_ROWS", (2,)),
    (levels, "_MOST_CROSSED", (5,)),
    (order, "_LONGEST", (8,)),
    (order, "_MANY", (2,)),
    (ranking, "_LONGEST_WALK", (4,)),
    (shapes, "_FEW", (2,)),
    (standing, "_FEW", (4,)),
    (standing, "_MOST_OWN", (8,)),
    (standing, "_MOST_PARTS", (5,)),
    (standing, "_TOGETHER", (2,)),
)


def small(seed: int) -> Iterator[tuple[ModuleType, str, int]]:
    """Return where each bound stands that is small in the story of this seed, its name, and its value.

    Some stay as they are: what is thrown away too early is never stale.
    """
    dice = Random(seed)
    for module, name, values in _SMALL:
        if dice.random() < 0.6:
            yield module, name, dice.choice(values)
