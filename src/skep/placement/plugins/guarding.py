"""What another package's filter or weigher does wrong is held against it by name, and never ends a scheduler."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from skep.domain.errors import SkepError
from skep.placement.hosts.columns import Floats, Mask
from skep.placement.hosts.view import HostView
from skep.placement.pipeline import Pipeline, Stage
from skep.placement.request import PlacementRequest
from skep.placement.settings import OnPluginError
from skep.placement.weighers.base import Weigher

AnswerT = TypeVar("AnswerT")

_MOST_ASIDE = 1024
"""Failures that are remembered for those who read what a stage left."""


class PluginFailed(SkepError):
    """A filter or weigher of another package raised something, or gave what is no answer; its text names it."""


class Guard:
    """Asks filters and weighers of other packages; counts what they do wrong."""

    def __init__(self, on_error: OnPluginError) -> None:
        """`on_error`: `fail` raises PluginFailed out of the decision, `skip` goes on as if the plug-in were not."""
        self.on_failure: Callable[[str, BaseException], None] | None = None
        """Told of each failure: the name that the operator chose, and the error."""
        self.guards = False
        """Whether there is any plug-in among what is asked."""
        self.open: tuple[int, str | None] = (0, None)
        """The number of the latest question, and who has not answered it yet; other threads may look."""
        self._on_error = on_error
        self._left_aside: OrderedDict[tuple[str, tuple[object, ...]], None] = OrderedDict()
        """Filters that failed, with the shape they failed for, until they answer for that shape again."""

    def around(self, pipeline: Pipeline) -> Pipeline:
        """Return the pipeline with a guard around what other packages brought."""
        stages = {one.name: tuple(map(self._guarded, getattr(pipeline, one.name))) for one in fields(pipeline)}
        return replace(pipeline, **stages)

    def _guarded(self, entry: Any) -> Any:
        """Return a filter, or a weigher with its multiplier, under guard; anything else as it is."""
        if isinstance(entry, Stage):
            return self._filter(entry)
        if isinstance(entry, tuple) and isinstance(entry[0], Weigher):
            return (self._weigher(entry[0]), entry[1])
        return entry

    def _filter(self, entry: Stage) -> Stage:
        if not entry.plugin:
            return entry
        self.guards = True
        ask = partial(self._ask, "filter", entry.name)

        def passes(hosts: HostView, request: PlacementRequest) -> Mask:
            found = ask(lambda: _mask(entry.passes(hosts, request), len(hosts)), None)
            # What is remembered for a shape is asked again of changed hosts alone: the others it still left aside.
            self._note(
                entry.name, request, failed=found is None, of_all=entry.per_request or len(hosts) >= hosts.table.size
            )
            return hosts.all() if found is None else found

        def stage(request: PlacementRequest) -> str:
            words: str = ask(lambda: str(entry.stage(request)), entry.name)
            return f"{words}, which failed and was left aside" if self._is_aside(entry.name, request) else words

        # Other ways to the same answer would have to be guarded, too: nobody needs them of a plug-in.
        return replace(
            entry,
            passes=passes,
            applies=lambda request: ask(lambda: bool(entry.applies(request)), instead=False),
            stage=stage,
            foreseeable=False,
            fits=None,
            named=None,
            domains=None,
            if_empty=passes if entry.if_empty is not None else None,
            room=None,
            still=None,
        )

    def _note(self, name: str, request: PlacementRequest, *, failed: bool, of_all: bool) -> None:
        """Note whether a filter failed for a shape of request."""
        if failed:
            self._left_aside[name, request.shape] = None
            if len(self._left_aside) > _MOST_ASIDE:
                self._left_aside.popitem(last=False)
        elif of_all:
            self._left_aside.pop((name, request.shape), None)

    def _is_aside(self, name: str, request: PlacementRequest) -> bool:
        return (name, request.shape) in self._left_aside

    def _weigher(self, entry: Weigher) -> Weigher:
        if not entry.plugin:
            return entry
        self.guards = True
        ask = partial(self._ask, "weigher", entry.name)
        return replace(
            entry,
            scores=lambda hosts, request: ask(
                lambda: _scores(entry.scores(hosts, request), len(hosts)), np.zeros(len(hosts))
            ),
            applies=lambda request: ask(lambda: bool(entry.applies(request)), instead=False),
            foreseeable=False,
            of_row=None,
            way=None,
            scaled=None,
        )

    def _ask(self, kind: str, name: str, question: Callable[[], AnswerT], instead: AnswerT) -> AnswerT:
        """Return the answer, or what holds without it. Raises PluginFailed where the operator wants that."""
        number = self.open[0] + 1
        self.open = (number, name)
        try:
            return question()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # what other packages raise is not ours to know; SystemExit ends no scheduler
            if self.on_failure is not None:
                self.on_failure(name, error)
            if self._on_error == "fail":
                raise PluginFailed(f"the {kind} {name}, a plug-in, failed ({type(error).__name__})") from error
            return instead
        finally:
            self.open = (number, None)


def _mask(answer: Mask, length: int) -> Mask:
    mask = np.asarray(answer)
    if mask.dtype != np.bool_ or mask.shape != (length,):
        raise ValueError(f"{mask.dtype} of shape {mask.shape} is no mask of {length} hosts")
    return mask


def _scores(answer: Floats, length: int) -> Floats:
    scores = np.asarray(answer, dtype=np.float64)
    if scores.shape != (length,):
        raise ValueError(f"shape {scores.shape} is not that of scores of {length} hosts")
    if not np.isfinite(scores).all():
        raise ValueError("a score is no finite number")
    return scores
