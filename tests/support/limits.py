"""A limit for what follows each test: fixtures that end, loops that close.

pytest-timeout takes the limit of a test away when the test fails, so what hangs after a failure would hang for ever.
A plug-in of pytest: `register(config)`.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest
from pytest_timeout import Settings  # type: ignore[import-untyped]  # it ships no types

TEARDOWN_SECONDS = 120.0
"""So long may take what follows a test."""


class Limits:
    """Sets the limit anew when a test is over."""

    def __init__(self, seconds: float) -> None:
        self._settings = Settings(seconds, "signal", func_only=False, disable_debugger_detection=False)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None]:
        hooks = item.config.pluginmanager.hook
        hooks.pytest_timeout_cancel_timer(item=item)
        hooks.pytest_timeout_set_timer(item=item, settings=self._settings)
        try:
            return (yield)
        finally:
            hooks.pytest_timeout_cancel_timer(item=item)


def register(config: pytest.Config, seconds: float = TEARDOWN_SECONDS) -> None:
    """Limit what follows the tests of this run."""
    config.pluginmanager.register(Limits(seconds), "limits")
