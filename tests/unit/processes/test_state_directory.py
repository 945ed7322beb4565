"""The state directory is closed to other users: whatever the umask, whoever makes it, however open it was."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from skep.domain.errors import Misconfigured
from skep.processes.directory import StateDirectory


@pytest.fixture(autouse=True)
def _everything_is_open(_umask: None) -> None:
    os.umask(0)


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def git(*arguments: str, cwd: Path) -> str:
    program = shutil.which("git")
    assert program is not None
    return subprocess.run([program, *arguments], cwd=cwd, check=True, capture_output=True, text=True).stdout


def _open_below(root: Path) -> list[str]:
    return [str(path) for path in (root, *root.rglob("*")) if path.stat().st_mode & 0o077]


def test_a_new_one_is_closed(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path / "above" / "state")
    directory.open()
    directory.seal()
    (directory.images / "bytes").write_bytes(b"x")
    directory.close()
    assert _open_below(directory.root) == []
    assert directory.notes() == ()


def test_one_that_is_there_is_closed_and_that_is_said(tmp_path: Path) -> None:
    root = tmp_path / "state"
    for folder in ("db", "images/incoming", "hosts/cell1/host1", "logs"):
        (root / folder).mkdir(parents=True)
    for file in ("db/api.db", "images/bytes", "hosts/cell1/host1/journal.jsonl", "logs/api-1.log", "clouds.yaml"):
        (root / file).write_text("x")
    beside = root / "notes.txt"
    beside.write_text("of the operator")
    directory = StateDirectory(root)
    directory.open()
    directory.close()
    assert _open_below(root) == [str(beside)]
    assert _mode(beside) == 0o666
    (note,) = directory.notes()
    assert note.startswith(f"{root} was open to other users of this machine, 13 files and directories")
    again = StateDirectory(root)
    again.open()
    again.close()
    assert again.notes() == ()


def test_links_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("x")
    root = tmp_path / "state"
    (root / "db").mkdir(parents=True)
    (root / "images").symlink_to(outside)
    (root / "db" / "link.db").symlink_to(outside / "file")
    StateDirectory(root).make()
    assert (_mode(outside), _mode(outside / "file")) == (0o777, 0o666)


def test_where_another_user_has_to_pass_only_that_is_left(tmp_path: Path) -> None:
    old = StateDirectory(tmp_path / "old")
    (old.servers / "postgres" / "data").mkdir(parents=True)
    (old.servers / "nats").mkdir()
    old.make(passed=True)
    assert (_mode(old.root), _mode(old.servers), _mode(old.servers / "nats")) == (0o711, 0o711, 0o700)
    assert _mode(old.servers / "postgres") == 0o777, "this is for its own user to close"
    new = StateDirectory(tmp_path / "new")
    new.make(passed=True)
    assert _mode(new.root) == 0o711


def test_what_was_closed_stays_closed(tmp_path: Path) -> None:
    """Else the data of PostgreSQL, which stands beside a closed directory, would be looked for in it."""
    directory = StateDirectory(tmp_path / "state")
    directory.root.mkdir(mode=0o700)
    directory.make(passed=True)
    assert _mode(directory.root) == 0o700


def test_a_place_for_all_users_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    with pytest.raises(Misconfigured, match="is shared by all users"):
        StateDirectory(tmp_path).open()


def test_git_leaves_out_one_that_stands_in_a_repository(tmp_path: Path) -> None:
    git("init", "--quiet", cwd=tmp_path)
    directory = StateDirectory(tmp_path / "any-name")
    directory.open()
    directory.seal()
    (directory.root / "clouds.yaml").write_text("password")
    directory.close()
    assert git("status", "--porcelain", "--untracked-files=all", cwd=tmp_path) == ""
    assert _open_below(directory.root) == []


def test_one_of_an_earlier_version_is_left_out_of_git_too(tmp_path: Path) -> None:
    root = tmp_path / "state"
    (root / "keys").mkdir(parents=True)
    StateDirectory(root).make()
    assert (root / ".gitignore").read_text() == "*\n"


def test_what_operators_say_to_git_themselves_stays(tmp_path: Path) -> None:
    root = tmp_path / "state"
    root.mkdir()
    (root / ".gitignore").write_text("*\n!notes.txt\n")
    StateDirectory(root).make()
    assert (root / ".gitignore").read_text() == "*\n!notes.txt\n"
