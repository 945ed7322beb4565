"""The checklist of `skep keys steps nats`, step by step: builds go on, and in the end the old secret opens nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from skep.config.sections import TransportSettings
from skep.contracts.cloud import quick_config
from skep.contracts.eventually import eventually
from skep.domain.errors import Misconfigured, Unreachable
from skep.processes.directory import StateDirectory, write_private
from skep.processes.servers.nats import NatsServer
from skep.transport.nats import NatsTransport
from tests.functional.processes.accounts_cloud import (
    Installation,
    compute_of,
    installed,
    make_databases,
    output_of,
)

TRIES = 5

pytestmark = [pytest.mark.needs_part("nats-server")]


async def test_each_host_and_role_gets_a_user_of_the_new_secret_while_builds_go_on(tmp_path: Path) -> None:
    async with installed(tmp_path, host_users=True) as installation:
        result = await installation.enrol(tmp_path / "h1", "h1", await installation.token())
        assert result.exit_code == 0, result.output
        agent = await compute_of(installation, tmp_path / "h1")
        of_host = tmp_path / "h1" / "hosts" / "cell1" / "h1" / "nats.creds"

        async def is_up() -> bool:
            return (await installation.up()).get("h1", False)

        async def builds(name: str) -> None:
            await installation.until_active(await installation.ask_for_server(name))

        await eventually(is_up, "the host is used")
        await builds("before")
        old = of_host.read_text()
        await rotate(installation, "is added")
        await restart_nats(installation, tmp_path)
        await builds("while both are taken")
        await rotate(installation, "are derived from secret")
        files = {
            tmp_path / "above.creds": ("above",),
            tmp_path / "cell-conductor.creds": ("cell-conductor", "--cell", "cell1"),
            of_host: ("host", "--host", "h1"),
        }
        for file, role in files.items():
            fresh = await output_of(installation.environ, "nats", "credentials", *role)
            write_private(file, fresh.encode())

        async def followed() -> bool:
            assert agent._transport is not None
            transports = (installation.above, agent._transport)
            return all(
                isinstance(one, NatsTransport) and one._connection.sign_ins.is_followed and one.connected
                for one in transports
            )

        await eventually(followed, "the agent has signed in anew")
        await builds("with new users")
        await rotate(installation, "is left")
        await restart_nats(installation, tmp_path)
        await builds("after")
        await eventually(is_up, "the host is used still")
        settings = await refused(installation, old, tmp_path)
        write_private(Path(settings.credentials_file), of_host.read_bytes())
        again = NatsTransport(settings)
        await again.open()
        await again.close()


async def test_without_users_of_hosts_a_reload_takes_users_of_both_secrets(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "state")
    state.open()
    state.close()
    base = quick_config()
    await make_databases(replace(base, state=replace(base.state, directory=str(state.root))))
    environ = {"SKEP_STATE__DIRECTORY": str(state.root), "SKEP_TRANSPORT__ACCOUNTS": "true"}
    roles = (("above",), ("cell-conductor", "--cell", "cell1"), ("compute", "--cell", "cell1"))

    async def urls() -> list[str]:
        return [await output_of(environ, "nats", "url", *role, "--servers", nats.url) for role in roles]

    async def config() -> str:
        text = await output_of(environ, "nats", "config", "--listen", f"127.0.0.1:{nats.port or -1}")
        return text.partition("Warning")[0]

    nats = NatsServer(tmp_path / "nats", jetstream=False)
    await nats.start()
    try:
        nats.reconfigure(await config())
        old = await urls()
        await eventually(lambda: all_in(old), "the users are taken")
        staying = NatsTransport(TransportSettings(kind="nats", url=old[0]))
        await staying.open()
        await output_of(environ, "keys", "rotate", "nats")
        assert await urls() == old
        nats.reconfigure(await config())
        await output_of(environ, "keys", "rotate", "nats")
        new = await urls()
        assert not {*new} & {*old}
        await eventually(lambda: all_in(new), "the new users are taken")
        assert await all_in(old)
        assert staying.reconnects == 0
        await output_of(environ, "keys", "rotate", "nats")
        nats.reconfigure(await config())

        async def old_are_refused() -> bool:
            return not any([await is_in(url) for url in old])

        await eventually(old_are_refused, "the old users are refused")
        assert await all_in(new)
        await staying.close()
    finally:
        nats.stop()


async def rotate(installation: Installation, said: str) -> None:
    assert said in await output_of(installation.environ, "keys", "rotate", "nats")


async def restart_nats(installation: Installation, tmp_path: Path) -> None:
    """Have the server read what `skep nats config` prints now: in this mode it takes another operator at a start."""
    nats = installation.nats
    options = ("--host-users", "--accounts-dir", str(tmp_path / "accounts"), "--jetstream", str(tmp_path / "store"))
    listen = ("--listen", f"127.0.0.1:{nats.port}")
    text = await output_of(installation.environ, "nats", "config", *listen, *options)
    nats.stop()
    nats.reconfigure(text)
    await nats.start()


async def refused(installation: Installation, credentials: str, folder: Path) -> TransportSettings:
    """See that credentials are refused; return by which settings that was asked."""
    file = folder / "old.creds"
    write_private(file, credentials.encode())
    settings = TransportSettings(kind="nats", url=installation.nats.url, credentials_file=str(file))

    async def probe() -> bool:
        transport = NatsTransport(settings)
        try:
            await transport.open()
        except Misconfigured:
            return True
        await transport.close()
        return False

    await eventually(probe, "the old user is refused")
    return settings


async def all_in(urls: list[str]) -> bool:
    return all([await is_in(url) for url in urls])


async def is_in(url: str) -> bool:
    """Tell whether the server takes a user; asked again where a reload cuts off the connection that is being made."""
    for left in reversed(range(TRIES)):
        transport = NatsTransport(TransportSettings(kind="nats", url=url))
        try:
            await transport.open()
        except Misconfigured:
            return False
        except Unreachable:
            await transport.close()
            if not left:
                raise
        else:
            await transport.close()
            break
    return True
