"""A backend is found by the name of its entry point, whoever ships it."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

import pytest

from skep.config.sections import SynchronizerSettings
from skep.domain.errors import Misconfigured
from skep.synchronizer.memory import MemoryBackend
from skep.synchronizer.registry import GROUP, make_backend
from tests.support.installing import install

OURS = {"memory", "sql", "memcached", "nats"}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def refusal(backend: str) -> str:
    with pytest.raises(Misconfigured) as raised:
        make_backend(SynchronizerSettings(backend=backend))
    return str(raised.value)


def test_the_backends_of_skep_are_entry_points() -> None:
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    assert set(found) >= OURS
    assert all(callable(found[name].load()) for name in OURS)


def test_a_backend_of_another_package_is_made(site: Path) -> None:
    install(site, "other", {GROUP: {"other": "skep.synchronizer.memory:make"}})
    assert isinstance(make_backend(SynchronizerSettings(backend="other")), MemoryBackend)


def test_a_name_that_nothing_bears_is_refused_with_those_there_are(site: Path) -> None:
    install(site, "other", {GROUP: {"other": "skep.synchronizer.memory:make"}})
    assert refusal("absent") == (
        "synchronizer.backend: there is no backend absent; there are memcached, memory, nats, other, sql"
    )


def test_a_name_that_two_packages_bear_is_refused_with_both(site: Path) -> None:
    install(site, "other", {GROUP: {"sql": "skep.synchronizer.memory:make"}})
    said = refusal("sql")
    assert said.startswith("synchronizer.backend: sql is the name of a backend in ")
    assert "other (skep.synchronizer.memory:make)" in said
    assert "skep (skep.synchronizer.sql:make)" in said


def test_what_cannot_be_loaded_is_named(site: Path) -> None:
    install(site, "other", {GROUP: {"other": "no_such_module:make"}})
    assert refusal("other").startswith(
        "synchronizer.backend: entry point other of the group skep.synchronizers cannot be used: ModuleNotFoundError"
    )
