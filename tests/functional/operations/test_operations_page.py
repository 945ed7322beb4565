"""Every command of `docs/operations.md` is run as it is written, or it is listed why it cannot be run here.

Only what stands in capitals is filled in (`HOST`, `ID`), and backups go to a directory of the test.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from skep.cli.main import skep
from skep.contracts.eventually import PATIENCE, eventually
from skep.contracts.http_cloud import ComputeSession, http_config, serving_cloud, signed_in
from skep.processes.all_in_one import AllInOneCloud
from tests.support.openstack import client_program
from tests.support.written_commands import commands_of, unknown_words

pytestmark = pytest.mark.filterwarnings("ignore:Support for InfluxDB")  # of the SDK, which these commands import
ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
COMMANDS = commands_of(PAGE)
READY = "Ctrl-C stops"
SIGN_IN = "export OS_CLIENT_CONFIG_FILE=$PWD/.skep/clouds.yaml OS_CLOUD=skep"

NATS_CONFIG = (
    "skep nats config --listen 0.0.0.0:4222 --jetstream /var/lib/nats --tls-cert nats.pem --tls-key nats.key "
    "> nats.conf"
)
NEW_DATABASES = (
    "for name in api cell0 cell1; do\n  psql -c \"CREATE ROLE skep_$name LOGIN PASSWORD 'CHOOSE'\"\n"
    "  createdb --template=template0 --encoding=UTF8 --locale=C --owner=skep_$name skep_$name\n"
    '  psql -c "REVOKE CONNECT ON DATABASE skep_$name FROM PUBLIC"\ndone'
)
ENROL = (
    "runuser -u skep-compute -- env SKEP_STATE__DIRECTORY=/var/lib/skep-compute ENROLMENT_TOKEN=skep_... \\\n"
    "  /opt/skep/.venv/bin/skep enrol --api https://cloud.example:8774"
)

LIVING = (
    *("skep cell list", "skep cell show cell1", "skep cell show NAME", "skep host list", "skep host show HOST"),
    "skep migration list",
    *("skep doctor", "skep doctor --audit", "skep doctor --audit --repair", "skep config show [--changed]"),
    "openstack server create --image tiny --flavor m1.tiny one --wait",
    *("skep server list", "skep server list --host HOST", "skep host plan HOST"),
    *("skep server show ID", "skep server explain ID", "openstack server event list SERVER"),
    "skep server actions SERVER --events",
    *("skep capacity --flavor F [--az Z] [--keep-free-hosts N]", "openstack compute service list"),
    *("skep cell credential create NAME", "skep namespace list"),
    *("skep cell enrolment-token NAME --uses N --expires 24h", "skep host release-key HOST"),
    *('skep host disable HOST --reason "disk full"', "skep host enable HOST"),
    *('skep host disable HOST --reason "goes away"', "skep host disable HOST --reason ..."),
    *("skep cell create cell3", "skep cell drain cell3 --wait 86400", "skep cell enable cell3"),
    *("skep cell disable NAME", "skep cell delete NAME", "skep cell delete cell3 --yes"),
    *("openstack image delete IMAGE", "openstack server delete ID"),
)
"""Run in this order against a cloud; those of a dead host and of retiring come after them."""
DEAD_HOST = (
    *("skep host force-down HOST", "skep host fence HOST --yes", "skep host unfence HOST"),
    *("skep host force-down HOST --off", "skep host fence HOST --although-unknown"),
    *("skep host fence HOST --yes [--although-unknown]", "openstack compute service delete ID"),
)
STARTS = (
    *("skep up --cells 1 --hosts 5", "skep up", "skep up --config skep.toml", "skep serve all-in-one"),
    "SKEP_STATE__DIRECTORY=.skep-2 skep up --free-ports",
)
BESIDE_A_START = ("skep request REQUEST-ID", "df -h", SIGN_IN)
STOPPED = (
    *("skep keys list", "skep config show", "skep db current", "skep db check", "skep db backup DIRECTORY"),
    *("skep db backup /srv/backups/before-upgrade", "skep db backup /srv/backups/before-restore"),
    *("skep db backup /srv/backups/monday", "skep db restore /srv/backups/monday --yes", "skep db upgrade"),
    *("skep user set-password admin", "skep user set-password NAME"),
    *("truncate -s 0 .skep/logs/api-1.log", "rm .skep/logs/*.log.1", "skep completion zsh", "skep man"),
    "skep completion bash > ~/.local/share/bash-completion/completions/skep",
    *("skep completion fish > ~/.config/fish/completions/skep.fish", "skep man > ~/.local/share/man/man1/skep.1"),
    *("skep db forget-cell cell1 --yes", "skep db forget-cell NAME --yes"),
)
ABOVE = (
    *(NATS_CONFIG, "skep nats url above", "skep nats url cell-conductor --cell cell1"),
    "skep nats config ... > nats.conf",
)
"""With the configuration of a process above the cells; its databases are files here."""

ELSEWHERE: dict[str, tuple[str, ...]] = {
    "it takes a terminal; tests/functional/clients/test_consoles.py gives it lines": ("skep server console SERVER",),
    "its guests are virtual machines; tests/functional/libvirt/test_up.py logs into one": ("skep server ssh SERVER",),
    "systemd starts and stops these units, which tests/architecture/test_deploy.py looks at": (
        *("systemctl enable --now skep-scheduler skep-cell-conductor@cell1 skep-super-conductor skep-api",),
        *("systemctl enable --now skep-cell-conductor@cell2", "systemctl enable --now skep-compute"),
        *("systemctl disable --now skep-compute", "systemctl status skep-compute", "systemctl start skep-compute"),
        "systemctl status skep-cell-conductor@cell1",
        "systemctl stop skep-api skep-metadata skep-super-conductor skep-scheduler",
        *(
            "systemctl stop skep-cell-conductor@cell1",
            "systemctl stop skep-compute",
            "systemctl restart skep-scheduler",
        ),
        *("systemctl start skep-scheduler skep-api skep-super-conductor", "systemctl start skep-cell-conductor@cell1"),
        "systemctl restart skep-compute",
        *("journalctl -u skep-compute -n 50", "journalctl -u skep-api", "journalctl -o cat -u 'skep-*'"),
    ),
    "the roles listen on these ports where they are services": (
        "curl -s localhost:8778/readyz; curl -s localhost:8781/readyz; curl -s localhost:8780/readyz",
        *("curl -s localhost:8774/readyz", "curl -s localhost:8781/readyz", "curl -s localhost:8778/readyz"),
    ),
    "they install the program and its users into the machine, as root": (
        *("git clone https://YOUR-MIRROR/skep /opt/skep && cd /opt/skep", "git fetch && git checkout COMMIT"),
        *("PYTHON=/usr/bin/python3 scripts/bootstrap run", ".venv/bin/python -m compileall -q src .venv/lib"),
        "install -m 644 deploy/sysusers.d/skep.conf /etc/sysusers.d/ && systemd-sysusers",
        "install -m 644 deploy/systemd/* /etc/systemd/system/ && systemctl daemon-reload",
        "install -d -m 711 /etc/skep && install -d -m 700 /etc/skep/cells",
        *("install -m 644 ca.pem /etc/skep/ca.pem", "install -d -m 700 -o skep -g skep /var/lib/skep"),
        "install -m 600 deploy/config/above.toml deploy/config/scheduler.toml /etc/skep/",
        "install -m 600 deploy/config/cell.toml /etc/skep/cells/cell1.toml",
        "alias skep=/opt/skep/.venv/bin/skep; export SKEP_CONFIG=/etc/skep/above.toml",
        *("chown -R skep: /var/lib/skep", "pip install 'skep[tracing]'"),
        "install -d -m 700 -o skep-compute -g skep-compute /var/lib/skep-compute",
        "export OS_CLIENT_CONFIG_FILE=/var/lib/skep/clouds.yaml OS_CLOUD=skep",
    ),
    "PostgreSQL is administered as its own user; test_live_cells.py makes such cells": (
        NEW_DATABASES,
        "createdb --template=template0 --encoding=UTF8 --locale=C skep_cell3",
        "skep cell create cell2 --database-url postgresql://skep_cell2:CHOOSE@db-cell2.example/skep_cell2",
        "skep cell create cell3 --database-url postgresql://skep_cell3:PASSWORD@db3/skep_cell3",
        "skep cell set cell3 --database-url ...",
    ),
    "NATS runs with accounts on a machine of its own; tests/functional/processes/test_enrolment.py does it": (
        "nats-server --signal reload=PID; sleep 2; nats-server --signal reload=PID",
        *("nats-server -c nats.conf", "skep nats url cell-conductor --cell cell2", "skep enrol --api URL"),
        *("skep cell enrolment-token cell2 --uses 40 --expires 24h", "skep nats credentials ROLE", "skep nats update"),
        ENROL,
    ),
    "each starts a role over NATS; tests/functional/processes does": (
        *("skep serve scheduler --config skep.toml", "skep serve cell-conductor --cell cell3", "skep serve ROLE"),
        *("SKEP_SCHEDULER__HEALTH_PORT=8779 skep serve scheduler --config skep.toml", "skep up --processes"),
    ),
    "a cloud of its own, or none; tests/functional/simulator and `make demo` run them": (
        *("skep simulate TRACE", "skep simulate --replay LOG", "skep demo"),
    ),
    "the first shows a page, the second names what is run with one shell each": (
        *("skep man | man -l -", "skep completion bash\\|zsh\\|fish"),
    ),
    "a database went back in time; tests/functional/cli/test_recovery.py runs the checklist": (
        *("skep recovery list", "skep recovery release HOST --yes", "skep recovery keep SERVER --host HOST"),
        *("skep recovery keep --all --yes", "skep db recover --only cell1 --yes"),
        *("skep recovery undo SERVER --host HOST --yes", "skep recovery go-on SERVER"),
    ),
    "its cell has lost the row; test_a_server_whose_row_is_lost_can_be_deleted_by_whom_it_belongs_to asks likewise": (
        "openstack --os-compute-api-version 2.69 server delete ID",
    ),
    "its host is switched off; tests/functional/servers/test_evacuations.py asks likewise": (
        "openstack server evacuate ID",
    ),
    "a host is emptied before its maintenance; tests/functional/clients/test_actions_by_client.py moves servers so": (
        *("openstack server migrate ID", "openstack server migrate --live-migration ID"),
        "openstack server migration confirm ID",
    ),
    "secrets are replaced step by step; test_key_rotation.py and test_host_key_rotation.py do it": (
        *("skep keys rotate host", "skep keys rotate sealing"),
    ),
    "the client finds the second cloud by it, which is started as written": (
        "export OS_CLIENT_CONFIG_FILE=$PWD/.skep-2/clouds.yaml OS_CLOUD=skep",
    ),
}
"""Why it is not run here, and what is not."""
RUN = (*LIVING, *DEAD_HOST, *STARTS, *BESIDE_A_START, *STOPPED, *ABOVE)


def test_every_command_is_run_or_listed() -> None:
    named = {command for commands in ELSEWHERE.values() for command in commands}
    here = {*RUN, *named}
    # `skep db restore` alone is the name of what `skep db restore /srv/... --yes` does.
    open_ones = [one for one in COMMANDS if one not in here and not any(other.startswith(f"{one} ") for other in here)]
    assert open_ones == []
    assert sorted(here - set(COMMANDS)) == []
    assert len(RUN) > 60
    assert len(named) == 77


@pytest.mark.parametrize("command", [one for one in COMMANDS if one.startswith("skep ")])
def test_every_command_of_skep_has_these_options(command: str) -> None:
    assert unknown_words(command) is None


class Shell:
    """Where an operator types: a directory with a state directory `.skep`, and Skep on the path."""

    def __init__(self, directory: Path, **settings: str) -> None:
        self.directory = directory
        self.backups = directory / "backups"
        self.backups.mkdir(exist_ok=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("OS_", "SKEP_"))}
        ports = {f"SKEP_{name}__PORT": "0" for name in ("API", "IDENTITY", "IMAGES", "NETWORKS")}
        path = os.pathsep.join((str(client_program().parent), str(Path(sys.executable).parent), os.environ["PATH"]))
        fast = {f"SKEP_COMPUTE__FAKE__{name}_DELAY": "0" for name in ("SPAWN", "DESTROY", "POWER")}
        self.environment = (
            kept | ports | fast | {"PATH": path, "HOME": str(directory), "SKEP_IDENTITY__SCRYPT_COST": "10"} | settings
        )
        self.words: dict[str, str] = {}

    def filled(self, command: str) -> str:
        """Fill in what stands in capitals, and where backups go."""
        text = command.replace("/srv/backups", str(self.backups))
        return re.sub(r"(?<![\w$-])[A-Z][A-Z-]*(?![\w=])", lambda word: self.words.get(word[0], word[0]), text)

    async def call(self, command: str) -> tuple[int | None, str, str]:
        """Run a command of Skep in a thread: a process for each would be spent on imports."""
        shown = {"OS_CLIENT_CONFIG_FILE": str(self.directory / ".skep" / "clouds.yaml"), "OS_CLOUD": "skep"}
        given = self.environment | (shown if self.signed_in else {})
        environment: dict[str, str | None] = dict.fromkeys(os.environ) | given
        invoke = partial(CliRunner().invoke, skep, shlex.split(command)[1:], env=environment, prog_name="skep")
        result = await asyncio.to_thread(invoke)
        return result.exit_code, result.stdout, f"{result.stderr}{result.exception or ''}"

    async def run(self, command: str) -> tuple[int | None, str, str]:
        if command.startswith("skep ") and ">" not in command:
            return await self.call(command)
        process = await self.start(f"{SIGN_IN}\n{command}" if self.signed_in else command)
        printed, errors = await asyncio.wait_for(process.communicate(), PATIENCE)
        return process.returncode, printed.decode(), errors.decode()

    async def start(self, command: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *("bash", "-c", command),
            cwd=self.directory,
            env=self.environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def type(self, command: str, *, status: int = 0, **words: str) -> str:
        """Run a command as written, both with and without what stands in brackets, and return what it printed."""
        self.words |= words
        short = re.sub(r" \[[^]]*]", "", command)
        out = ""
        for one in dict.fromkeys((short, re.sub(r"[][]", "", command))):
            ended, out, errors = await self.run(self.filled(one))
            assert ended == status, (one, out, errors)
        return out

    @property
    def signed_in(self) -> bool:
        return (self.directory / ".skep" / "clouds.yaml").exists()


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


async def test_a_cloud_that_runs(tmp_path: Path) -> None:
    config = http_config(tmp_path)
    state = tmp_path / ".skep"
    state.symlink_to(tmp_path / "state")
    async with serving_cloud(config, cells=1, hosts=2) as cloud, signed_in(cloud) as session:
        shell = Shell(tmp_path)
        shell.words = {"NAME": "cell1", "HOST": "cell1-host1", "F": "m1.tiny", "Z": "nova", "N": "1"}
        for command in LIVING:
            if "cell delete NAME" in command or "cell disable NAME" in command:
                shell.words["NAME"] = "cell3"
            # A second delete finds nothing.
            status = 1 if command == "skep cell delete cell3 --yes" else 0
            if command == "skep cell delete NAME":
                command = f"{command} --yes"  # noqa: PLW2901 - nobody is there to be asked
            out = await shell.type(command, status=status)
            await _look(shell, session, command, out)
        await _a_host_dies(cloud, shell)


async def _look(shell: Shell, session: ComputeSession, command: str, out: str) -> None:
    """Take from what was printed, or from the API, what later commands name, and see that it is right."""
    if command.startswith("openstack server create"):
        (server,) = (await session.ask("GET", "/servers/detail")).json()["servers"]
        shell.words |= {"ID": server["id"], "SERVER": server["id"], "IMAGE": server["image"]["id"]}
        assert server["status"] == "ACTIVE"
    elif command == "openstack compute service list":
        rows = (await session.ask("GET", "/os-services")).json()["services"]
        newest = (await session.ask("GET", "/os-services", version="2.53")).json()["services"]
        assert len({row["id"] for row in rows}) == len({row["id"] for row in newest}) == len(rows) >= 5
        assert any(all(str(row["id"]) in out for row in each) for each in (rows, newest)), out
        (shell.words["SERVICE"],) = [row["id"] for row in newest if row["host"] == "cell1-host2"]


async def _a_host_dies(cloud: AllInOneCloud, shell: Shell) -> None:
    """Kill an agent without a server, and go through the checklist."""
    shell.words["HOST"] = host = "cell1-host2"
    await cloud.plane.agents.pop(host).stop()
    cloud.plane.drivers.pop(host).close()

    async def state() -> str:
        listed = json.loads(await shell.type("skep host list --format json"))
        return str(next(one["state"] for one in listed if one["host"] == host))

    async def is_silent() -> bool:
        return await state() == "silent"

    await eventually(is_silent, "the host is silent")
    await shell.type("skep host force-down HOST")
    assert await state() == "down"
    out = await shell.type("skep host fence HOST --yes")
    assert "is fenced. Its servers and builds are given up at" in out
    assert await state() == "down"
    assert "is not fenced" in await shell.type("skep host unfence HOST")
    await shell.type("skep host force-down HOST --off")
    # Nobody answers the question, and a host that is not forced down is not fenced.
    await shell.type("skep host fence HOST --although-unknown", status=1)
    await shell.type("skep host force-down HOST")
    await shell.type("skep host fence HOST --yes [--although-unknown]")
    await shell.type("openstack compute service delete ID", ID=shell.words["SERVICE"])
    listed = json.loads(await shell.type("skep host list --format json"))
    assert [one["host"] for one in listed] == ["cell1-host1"]


async def _served(shell: Shell, command: str, ready: str) -> list[str]:
    """Start a cloud as written, look at it once it is ready, end it by Ctrl-C; return what it printed first."""
    process = await shell.start(f"exec env {shell.filled(command)}")
    assert process.stdout is not None
    assert process.stderr is not None
    errors = asyncio.create_task(process.stderr.read())
    lines: list[str] = []
    try:
        if ready:
            async with asyncio.timeout(3 * PATIENCE):
                async for line in process.stdout:
                    lines.append(line.decode().rstrip())
                    if ready in lines[-1]:
                        break
                else:
                    raise AssertionError((command, (await errors).decode()))
        else:
            await eventually(lambda: _is_up(shell), f"{command} serves", seconds=3 * PATIENCE)
        if command == STARTS[0]:
            shell.words |= await _request(shell)
            for beside in BESIDE_A_START:
                await shell.type(beside)
        process.send_signal(signal.SIGINT)
        await asyncio.wait_for(process.wait(), PATIENCE)
        assert process.returncode == 0, (command, await errors)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await errors
    return lines


async def _is_up(shell: Shell) -> bool:
    process = await shell.start(f"{SIGN_IN}\nskep host list --format json")
    printed, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
    return process.returncode == 0 and '"up"' in printed.decode()


async def _request(shell: Shell) -> dict[str, str]:
    rows: list[dict[str, Any]] = json.loads(
        await shell.type("openstack server event list one -f json --os-compute-api-version 2.21")
    )
    return {"REQUEST-ID": rows[-1]["Request ID"]}


async def test_a_cloud_that_is_started_and_stopped(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    (tmp_path / "skep.toml").write_text('[log]\nlevel = "info"\n')
    for command in STARTS:
        lines = await _served(shell, command, "" if "serve" in command else READY)
        if command == STARTS[0]:
            assert "1 cell, 5 hosts (5 up)." in lines[0]
    state = tmp_path / ".skep"
    for kept in (".local/share/bash-completion/completions", ".config/fish/completions", ".local/share/man/man1"):
        (tmp_path / kept).mkdir(parents=True)
    (state / "logs" / "api-1.log").write_text("x")
    (state / "logs" / "api-1.log.1").write_text("x")
    shell.words = {"DIRECTORY": str(tmp_path / "copy"), "NAME": "demo"}
    for command in STOPPED:
        if "forget-cell" in command:
            await _lose_cell1(shell, command)
        await shell.type(command, NAME="cell1" if "forget-cell" in command else "demo")
    assert (state / "logs" / "api-1.log").read_text() == ""


async def _lose_cell1(shell: Shell, command: str) -> None:
    """Take the cell's database away, as a broken disk does."""
    if command.endswith("NAME --yes"):
        await shell.type("skep db restore /srv/backups/monday --yes")
    for file in (shell.directory / ".skep" / "db").glob("cell1.db*"):
        file.unlink()


async def test_a_machine_above_the_cells(tmp_path: Path) -> None:
    text = (ROOT / "deploy" / "config" / "above.toml").read_text(encoding="utf-8")
    text = text.replace("/var/lib/skep", str(tmp_path / ".skep"))
    text = re.sub(r"postgresql://[^\"]*/skep_(\w+)", lambda found: f"sqlite:///{tmp_path}/{found[1]}.db", text)
    (tmp_path / "above.toml").write_text(text, encoding="utf-8")
    shell = Shell(tmp_path, SKEP_CONFIG=str(tmp_path / "above.toml"))
    await shell.type("skep db upgrade")
    for command in ABOVE:
        # What stands behind the three dots is what was said before.
        typed = command.replace(" ... ", NATS_CONFIG.removeprefix("skep nats config").partition(">")[0])
        out = await shell.type(typed)
        if "url" in command:
            assert out.startswith("tls://")
    assert "accounts" in (tmp_path / "nats.conf").read_text(encoding="utf-8")
