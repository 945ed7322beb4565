"""The story is told once for all tests."""

from __future__ import annotations

import asyncio

import pytest

from tests.functional.going_back.story import Story, told


@pytest.fixture(scope="session")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    return asyncio.run(told(tmp_path_factory.mktemp("story")))
