"""A streaming replica of a PostgreSQL, cut off from its primary so that it lags, and promoted in its place."""

from __future__ import annotations

import subprocess

from skep.contracts.eventually import eventually
from skep.processes.servers import postgres_access as access
from skep.processes.servers.postgres import PostgresServer
from skep.processes.servers.programs import find_program

PROGRAM = "pg_basebackup"


def replica_of(primary: PostgresServer) -> PostgresServer:
    """Return a running replica in a temporary folder of its own; the caller removes it. Blocks."""
    program = find_program(PROGRAM)
    assert program is not None
    with (primary.data / "pg_hba.conf").open("a") as rules:
        rules.write("host replication all 127.0.0.1/32 scram-sha-256\n")
    with primary.connect() as connection:
        connection.execute("SELECT pg_reload_conf()")
    replica = PostgresServer(password=primary.password)
    source = f"host=127.0.0.1 port={primary.port} user={access.SUPERUSER} password={primary.password}"
    made = subprocess.run(
        [program, "--pgdata", replica.data, "--write-recovery-conf", "--checkpoint=fast", "--no-sync", "-d", source],
        check=False,
        capture_output=True,
        cwd=replica.folder,
        **replica._as,
    )
    assert made.returncode == 0, made.stderr.decode(errors="replace")
    access.write_rules(replica.data, replica.password, replica._as)
    replica.start()
    return replica


async def caught_up(primary: PostgresServer, replica: PostgresServer) -> None:
    """Wait until the replica has replayed what the primary has written by now."""
    with primary.connect() as connection:
        written = connection.execute("SELECT pg_current_wal_lsn()").fetchone()

    async def replayed() -> bool:
        with replica.connect() as connection:
            query = "SELECT coalesce(pg_last_wal_replay_lsn() >= %s::pg_lsn, false)"
            return connection.execute(query, written).fetchone() == (True,)

    await eventually(replayed, "the replica has caught up")


def cut_off(replica: PostgresServer) -> None:
    """Have the replica receive nothing more. Blocks until its connection to the primary is closed."""
    with replica.connect() as connection:
        connection.execute("ALTER SYSTEM SET primary_conninfo = ''")
        connection.execute("SELECT pg_reload_conf()")
        while connection.execute("SELECT FROM pg_stat_wal_receiver").fetchone() is not None:
            connection.execute("SELECT pg_sleep(0.02)")


def promote(replica: PostgresServer, primary: PostgresServer) -> None:
    """Put the replica, as far as it came, into the place of its primary, whose address it gets. Blocks."""
    with replica.connect() as connection:
        assert connection.execute("SELECT pg_promote()").fetchone() == (True,)
    port = primary.port
    primary.kill()
    replica.stop()
    replica.port = port
    replica.start()
