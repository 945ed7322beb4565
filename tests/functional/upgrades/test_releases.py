"""The list of releases tells the truth about the history, and each release is to be had from it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from skep_lab.releases import (
    FIRST_ROLLING,
    SOURCES,
    Release,
    file_of,
    installed,
    released,
    releases,
    unpack,
    upgraded_from,
    why_not,
)


def version_in(pyproject: str) -> str:
    found = re.search(r'^version = "(.+)"$', pyproject, re.MULTILINE)
    assert found is not None
    return found[1]


def versions_in(changelog: str) -> list[str]:
    """The versions that a list of changes names, newest first."""
    return re.findall(r"^## (\d+\.\d+\.\d+)", changelog, re.MULTILINE)


@pytest.mark.parametrize("release", releases(), ids=lambda release: release.version)
def test_the_commit_of_a_release_has_its_version_and_its_changes(
    release: Release, needs: Callable[[Release], Release], tmp_path: Path
) -> None:
    needs(release)
    assert version_in(file_of(release, "pyproject.toml")) == release.version
    assert versions_in(file_of(release, "CHANGELOG.md"))[0] == release.version
    unpack(release, tmp_path)
    assert version_in((tmp_path / "pyproject.toml").read_text()) == release.version
    assert (tmp_path / "src" / "skep" / "__init__.py").is_file()


def test_every_release_but_the_one_in_the_making_is_listed_once_in_order() -> None:
    listed = [release.version for release in releases()]
    now = version_in((SOURCES / "pyproject.toml").read_text())
    told = versions_in((SOURCES / "CHANGELOG.md").read_text())
    assert [one for one in listed if one != now] == [one for one in reversed(told) if one != now]
    assert len(set(listed)) == len({release.commit for release in releases()}) == len(listed)


def test_a_release_runs_as_itself_with_what_it_was_locked_to(needs: Callable[[Release], Release]) -> None:
    release = needs(released(FIRST_ROLLING))
    interpreter = installed(release)
    assert interpreter is not None
    told = subprocess.run([interpreter, "-m", "skep.cli", "--version"], capture_output=True, text=True, check=True)
    assert told.stdout == f"skep {release.version}\n"
    assert installed(release) == interpreter, "and it is there from now on"


def test_upgrades_are_tried_from_the_first_and_the_last_release_none_twice() -> None:
    tried = [release.version for release in upgraded_from()]
    assert tried[0] == FIRST_ROLLING
    assert len(set(tried)) == len(tried) <= 2


def test_a_commit_that_is_not_there_is_named() -> None:
    lost = Release(version="9.9.9", date=releases()[0].date, commit="0" * 40)
    assert installed(lost) is None
    assert lost.commit in why_not(lost)
