"""What somebody is told whose machine lacks something, and what happens to tests that need it."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from skep.contracts.eventually import PATIENCE

ROOT = Path(__file__).parents[2]
TOOLS = ("sh", "cat", "cut", "dirname", "mkdir", "rm", "rmdir", "sha256sum", "tr")


HALF_A_VENV = """import pathlib, sys
if __name__ == "__main__":
    pathlib.Path(sys.argv[1], "bin").mkdir(parents=True)
    sys.exit("ensurepip is not available\\nOn Debian/Ubuntu systems ...")
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone nothing was installed into, with a PATH of its own that holds the plainest tools only."""
    for name in ("pyproject.toml", "uv.lock"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "lab").mkdir()
    shutil.copy(ROOT / "lab" / "pyproject.toml", tmp_path / "lab")
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    (tmp_path / "bin").mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found is not None
        (tmp_path / "bin" / tool).symlink_to(found)
    return tmp_path


def bootstrap(clone: Path, **environ: str) -> tuple[int, list[str]]:
    done = subprocess.run(
        ["scripts/bootstrap", "run"],
        cwd=clone,
        env={"PATH": str(clone / "bin"), **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    return done.returncode, done.stderr.splitlines()


@pytest.mark.parametrize("ensurepip", ["raise ImportError\n", ""])
def test_without_any_installer_one_line_names_the_package(clone: Path, ensurepip: str) -> None:
    """Also where ensurepip is there and does not work: then `python3 -m venv` leaves half an environment."""
    (clone / "bin" / "python3").symlink_to(sys.executable)
    blocked = clone / "blocked"
    blocked.mkdir()
    (blocked / "pip.py").write_text("raise ImportError\n")
    (blocked / "ensurepip.py").write_text(ensurepip)
    (blocked / "venv.py").write_text(HALF_A_VENV)
    status, (line,) = bootstrap(clone, PYTHONPATH=str(blocked))
    assert status == 1
    assert line.endswith("apt-get install python3-venv")
    assert not (clone / ".skep-tools").exists()


def test_an_interpreter_that_is_asked_for_and_wrong_is_refused(clone: Path) -> None:
    (clone / "bin" / "python3").symlink_to(sys.executable)
    for wrong in ("/absent/python3", str(clone / "bin" / "cat")):
        assert bootstrap(clone, PYTHON=wrong) == (1, [f"skep: PYTHON={wrong} is no Python 3.11 or newer"])


def test_an_environment_of_another_interpreter_is_not_taken(clone: Path) -> None:
    other = clone / ".venv" / "bin" / "python"
    other.parent.mkdir(parents=True)
    other.write_text('#!/bin/sh\ncase "$2" in *base_prefix*) echo /other 3.12;; esac\n')
    other.chmod(0o755)
    status, (line,) = bootstrap(clone, PYTHON=sys.executable)
    assert status == 1
    assert (
        line == f"skep: .venv was made by another Python (/other 3.12) than PYTHON={sys.executable}; remove .venv first"
    )


def test_what_another_release_installed_over_is_installed_anew(clone: Path) -> None:
    for name in ("python", "python3"):
        (clone / "bin" / name).symlink_to(sys.executable)
    (clone / ".venv" / "bin").mkdir(parents=True)
    (clone / ".venv" / "bin" / "python").symlink_to(sys.executable)
    marks = {kind: clone / ".venv" / f".installed-{kind}" for kind in ("all", "run")}
    read = [clone / name for name in ("uv.lock", "pyproject.toml", "lab/pyproject.toml", "scripts/bootstrap")]
    python = subprocess.run(
        [clone / "bin" / "python3", "-c", "import sys; print(sys.executable)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    content = b"".join(path.read_bytes() for path in read) + f"{clone}\n{python}".encode()
    marks["all"].write_text(f"{hashlib.sha256(content).hexdigest()}\n")
    assert bootstrap(clone) == (0, [])
    marks["run"].write_text("that of another release\n")
    later = marks["all"].stat().st_mtime + 1
    os.utime(marks["run"], (later, later))
    asked = _noting_uv(clone)
    status, _ = bootstrap(clone, UV_DEFAULT_INDEX="none", SSL_CERT_FILE="none")
    assert status == 0
    assert any("--require-hashes" in line for line in asked.read_text().splitlines())
    assert marks["run"].read_text() == marks["all"].read_text()


def _noting_uv(clone: Path) -> Path:
    """Put a uv in its place that installs nothing; return where it notes what it is asked for."""
    (version,) = re.findall(r"^UV_VERSION=(.+)$", (clone / "scripts" / "bootstrap").read_text(), re.MULTILINE)
    program = clone / ".skep-tools" / f"uv-{version}" / "bin" / "uv"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >>{clone}/asked\n')
    program.chmod(0o755)
    return clone / "asked"


def test_an_old_python_is_named(clone: Path) -> None:
    old = clone / "bin" / "python3"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "Python 3.9.2" && exit 0\nexit 1\n')
    old.chmod(0o755)
    status, (line,) = bootstrap(clone)
    assert status == 1
    assert line.startswith("skep: Python 3.9.2 is too old, Python 3.11 or newer is needed")


def test_no_python_at_all(clone: Path) -> None:
    assert bootstrap(clone) == (
        1,
        ["skep: no Python found, install it: apt-get install python3 python3-venv"],
    )


@pytest.mark.parametrize(("ci", "status", "outcome"), [("true", 1, "1 error"), ("", 0, "1 skipped")])
def test_an_absent_part_is_skipped_at_home_and_fails_in_ci(tmp_path: Path, ci: str, status: int, outcome: str) -> None:
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = needs_part(name): as in the project\n")
    (tmp_path / "test_part.py").write_text(
        "import pytest\n\n@pytest.mark.needs_part('no-such-program')\ndef test_it():\n    pass\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "."],
        cwd=tmp_path,
        env={**os.environ, "CI": ci, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert (done.returncode, outcome in done.stdout) == (status, True), done.stdout
    assert "no-such-program is not installed" in done.stdout
