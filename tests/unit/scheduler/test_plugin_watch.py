"""A plug-in that runs for long is named by another thread, once, while its scheduler can do nothing."""

from __future__ import annotations

import threading

from skep.contracts.eventually import PATIENCE
from skep.placement.plugins.guarding import Guard
from skep.scheduler.plugin_watch import PluginWatch


class Watched:
    """A guard whose questions a test opens and ends, and a clock that it sets."""

    def __init__(self) -> None:
        self.now = 100.0
        self.guard = Guard("fail")
        self.named: list[str] = []
        self.watch = PluginWatch(self.guard, self.named.append, monotonic=lambda: self.now)

    def after(self, seconds: float) -> list[str]:
        """Return who has been named when so much time has passed and a look was taken."""
        self.now += seconds
        self.watch.look()
        return self.named


def test_who_is_asked_for_long_is_named_once() -> None:
    watched = Watched()
    watched.guard.open = (1, "Slow")
    assert watched.after(0.0) == []
    assert watched.after(0.9) == []
    assert watched.after(0.1) == ["Slow"]
    assert watched.after(60.0) == ["Slow"]
    watched.guard.open = (1, None)
    assert watched.after(0.1) == ["Slow"]
    watched.guard.open = (2, "Slow")
    assert watched.after(0.1) == ["Slow"]
    assert watched.after(1.0) == ["Slow", "Slow"]


def test_many_short_questions_are_not_one_long_one() -> None:
    watched = Watched()
    for number in range(20):
        watched.guard.open = (number, "Quick")
        assert watched.after(0.4) == []


def test_it_is_named_while_it_runs() -> None:
    """The question below ends only because the other thread has named who was asked."""
    guard = Guard("fail")
    named = threading.Event()
    watch = PluginWatch(guard, lambda _: named.set(), seconds=0.004)
    guard.guards = True
    watch.start()
    assert guard._ask("filter", "Slow", lambda: named.wait(PATIENCE), instead=False)
    watch.stop()
    assert guard.open == (1, None)


def test_without_plugins_nobody_looks() -> None:
    before = threading.active_count()
    watch = PluginWatch(Guard("fail"), lambda _: None)
    watch.start()
    assert threading.active_count() == before
    watch.stop()
