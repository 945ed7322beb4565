"""The client that tests fork is the client: it says what the program says, and dies with the program."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from skep.contracts.eventually import PATIENCE, eventually
from tests.support import forked_client
from tests.support.openstack import client_program

PROGRAM = Path(sys.executable).with_name("openstack")
NOWHERE = {"OS_AUTH_TYPE": "none", "OS_ENDPOINT": "http://127.0.0.1:1", "COLUMNS": "80"}


@pytest.mark.parametrize(("words", "status"), [("server create --help", 0), ("no such command", 2), ("server list", 1)])
def test_it_says_and_ends_as_the_program_does(words: str, status: int, tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **NOWHERE}
    said = [
        subprocess.run(
            [client, *words.split()], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        for client in (PROGRAM, client_program())
    ]
    assert [one.returncode for one in said] == [status, status]
    assert said[0].stdout == said[1].stdout
    assert said[0].stderr == said[1].stderr


def served_by(code: str, tmp_path: Path) -> tuple[subprocess.Popen[bytes], Path]:
    """A server that forks `run`, a function of some code, and the program that asks it."""
    address, program = tmp_path / "socket", tmp_path / "program"
    serving = (
        f"import os, signal, socket, sys\nfrom {forked_client.__name__} import serve\n{code}\n"
        "with socket.socket(socket.AF_UNIX) as waiting:\n"
        f"    waiting.bind({str(address)!r}); waiting.listen(); print('listening', flush=True); serve(waiting, run)\n"
    )
    server = subprocess.Popen(
        [sys.executable, "-c", serving], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert server.stdout is not None
    assert server.stdout.readline() == b"listening\n"
    forked_client.write_program(program, address)
    return server, program


async def test_it_ends_with_the_program_that_asked_for_it(tmp_path: Path) -> None:
    server, program = served_by("def run(words):\n    print(os.getpid(), flush=True)\n    signal.pause()", tmp_path)
    asking = await asyncio.create_subprocess_exec(program, stdout=asyncio.subprocess.PIPE)
    assert asking.stdout is not None
    forked = int(await asyncio.wait_for(asking.stdout.readline(), PATIENCE))
    asking.kill()
    await asking.wait()

    async def gone() -> bool:
        return not os.path.exists(f"/proc/{forked}")  # noqa: ASYNC240, PTH110 - it is no disk that answers

    await eventually(gone, "the forked process has ended")
    await asyncio.to_thread(server.communicate)
    assert server.returncode == 0, "the end of its input ends the server"


@pytest.mark.parametrize(
    ("code", "status", "said"),
    [
        ("sys.exit('spoken')", 1, "spoken\n"),
        ("raise KeyError('unforeseen')", 1, "KeyError: 'unforeseen'\n"),
        ("return 7", 7, ""),
        ("os.kill(os.getpid(), 9)", 1, "the client ended without a status\n"),
    ],
)
async def test_every_end_has_its_status(code: str, status: int, said: str, tmp_path: Path) -> None:
    server, program = served_by(f"def run(words):\n    {code}", tmp_path)
    done = await asyncio.to_thread(subprocess.run, [program], capture_output=True, text=True, check=False)
    await asyncio.to_thread(server.communicate)
    assert (done.returncode, done.stderr[-len(said) or len(done.stderr) :]) == (status, said)
