"""Finds the suite's tests for its runner.

In a cloud without networks, classes that ask for a network only through their base go without one.
"""

import unittest
from typing import Any

from tempest import config
from tempest.api.compute import base
from tempest.test_discover import test_discover


def load_tests(loader: unittest.TestLoader, tests: Any, pattern: str | None) -> Any:
    """Find them as the suite itself does."""
    found = test_discover.load_tests(loader, tests, pattern)
    if not config.CONF.service_available.neutron:
        _go_without(base.BaseV2ComputeTest)
    return found


def _go_without(kind: Any) -> None:
    kind.create_default_network = False
    for below in kind.__subclasses__():
        _go_without(below)
