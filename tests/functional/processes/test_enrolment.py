"""From a token to a host that is used: NATS with an account for each cell, and one of each role beside the agent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from skep.compute.identity import load as load_identity
from skep.contracts.eventually import eventually
from skep.database import opening
from skep.database.api import retired_hosts
from skep.database.api.retired_hosts import RetiredHost
from skep.database.cell import agents, host_keys
from skep.domain.credentials import new_token
from skep.processes.databases import Places
from skep.processes.directory import StateDirectory
from tests.functional.processes.accounts_cloud import CELL, Installation, compute_of, installed, said

pytestmark = [pytest.mark.needs_part("nats-server")]


@pytest.fixture
async def installation(tmp_path: Path) -> AsyncIterator[Installation]:
    async with installed(tmp_path) as installation:
        yield installation


async def test_an_enrolled_host_is_mapped_and_used_with_no_further_command(
    installation: Installation, tmp_path: Path
) -> None:
    token, state = await installation.token(), tmp_path / "machine"
    for _ in range(2):
        result = await installation.enrol(state, "new.host", token)
        assert result.exit_code == 0, result.output
    assert (state / "compute.toml").stat().st_mode & 0o077 == 0
    assert not (state / "enrolling" / "new.host").exists()
    told = load_identity(state / "hosts" / "cell1" / "new.host")
    assert told is not None
    assert len(told.cell_key) == 32, "the agent knows its conductors before it has heard one"
    role = await compute_of(installation, state)

    async def is_up() -> bool:
        return (await installation.up()).get("new.host", False)

    await eventually(is_up, "the host is mapped, has reported and lives")

    async def is_ready() -> bool:
        return not role.reasons()

    await eventually(is_ready, "the agent says that it is ready")
    # Its reports were signed: the conductor of this cell takes nobody who was not enrolled.
    cell = await opening.open_database(
        "cell1", Places(installation.config, StateDirectory(tmp_path / "state")).of("cell1"), upgrade=False
    )
    assert role._made is not None
    assert await cell.read(partial(host_keys.get, node=role._made.agent.node)) is not None
    await cell.close()
    second = await installation.enrol(tmp_path / "another", "another", token)
    assert second.exit_code == 1
    assert "used up" in second.output


async def test_a_host_that_was_not_enrolled_is_not_let_in(installation: Installation, tmp_path: Path) -> None:
    state = tmp_path / "machine"
    assert (await installation.enrol(state, "h1", await installation.token())).exit_code == 0
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    written = (state / "compute.toml").read_text()
    (stranger / "compute.toml").write_text(written.replace(str(state), str(stranger)).replace('"h1"', '"h2"'))
    role = await compute_of(installation, stranger)
    known = await compute_of(installation, state)

    async def is_up() -> bool:
        return (await installation.up()).get("h1", False)

    await eventually(is_up, "the one that was enrolled is used")
    assert not known.reasons()
    assert role.reasons() == ["no conductor of the cell has registered this host yet"]
    assert set(await installation.up()) == {"h1"}


async def test_a_host_that_was_retired_is_let_in_only_when_it_was_enrolled_again(
    installation: Installation, tmp_path: Path
) -> None:
    state = tmp_path / "machine"
    assert (await installation.enrol(state, "h1", await installation.token())).exit_code == 0
    role = await compute_of(installation, state)

    async def is_up() -> bool:
        return (await installation.up()).get("h1", False)

    await eventually(is_up, "the host is used")
    assert role._made is not None
    node = role._made.agent.node
    await role.stop()
    places = Places(installation.config, StateDirectory(tmp_path / "state"))
    cell = await opening.open_database("cell1", places.of("cell1"), upgrade=False)
    api = await opening.open_database("api", places.of("api"), upgrade=False)
    agent = await cell.read(partial(agents.get, node=node))
    assert agent is not None
    retired = RetiredHost(node=node, host="h1", cell=CELL.uuid, process=agent.process, retired_at=1)
    await api.write(partial(retired_hosts.add, new=retired))

    async def is_forgotten() -> bool:
        return not await api.read(retired_hosts.every)

    await eventually(is_forgotten, "the cell has forgotten the host")
    await cell.close()
    await api.close()
    role = await compute_of(installation, state)
    assert role.reasons() == ["no conductor of the cell has registered this host yet"]
    assert await installation.up() == {}
    again = await installation.enrol(state, "h1", await installation.token())
    assert again.exit_code == 0, again.output
    await eventually(is_up, "the host is used again")


async def test_what_is_in_the_way_is_said(installation: Installation, tmp_path: Path) -> None:
    state = tmp_path / "machine"
    state.mkdir()
    (state / "compute.toml").write_text("[compute]\n")
    result = await installation.enrol(state, "h1", await installation.token())
    assert result.exit_code == 2
    assert "was not written by `skep enrol`" in result.output
    result = await installation.enrol(tmp_path / "other", "h1", new_token().text)
    assert result.exit_code == 1
    assert "another installation" in result.output
    assert "(403)" in result.output
    words = ("enrol", "--api", "http://127.0.0.1:1", "--token", "t", "--host", "h")
    result = await said(words, {"SKEP_STATE__DIRECTORY": str(tmp_path / "other")})
    assert result.exit_code == 1
    assert "does not answer" in result.output
