"""`python -m skep_lab.fuzz`: send requests of any content to a cloud of its own, and tell which answers are faults.

A fault is an answer with a 5xx, one that the service's document does not have, or none within the limit.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import random
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from skep.config.networks import NetworksSettings
from skep.config.sections import CellSettings, Config, DatabaseSettings
from skep.contracts.http_cloud import http_config, serving_cloud
from skep.contracts.loopback import plain_client
from skep.processes.all_in_one import AllInOneCloud
from skep.processes.seeds import passwords_in
from skep.processes.servers.postgres import PostgresServer
from skep.standalone.images.fields import BODY_PATCH, BODY_PATCH_BEFORE
from skep.telemetry.log_file import LogFile
from skep.telemetry.logs import configure
from skep_lab.fuzz.documents import documents, operations
from skep_lab.fuzz.known import known, with_known

PROGRAM = Path(__file__).parents[4] / ".skep-tools" / "fuzz" / "bin" / "schemathesis"
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
SECONDS = 10.0
"""A request without an answer after this time hangs."""
PLAIN: tuple[str, ...] = ("--phases", "fuzzing", "--continue-on-failure", "--request-timeout", str(SECONDS))
PLAIN += ("--suppress-health-check", "all", "--warnings", "off", "--no-color")
NEW_SEED = 1_000_000
HOOKS = f"""import schemathesis
schemathesis.serializer.alias({[BODY_PATCH, BODY_PATCH_BEFORE]!r}, "application/json")
"""
"""What the program does not know of itself: further media types that are JSON."""
JUDGED = """[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", "501"]
"""
"""501 is the answer for what no driver can do, as in Nova (`PUT /os-hosts/{host}` and its like)."""


def main() -> int:
    """Run it; 1 when there was a fault."""
    parser = argparse.ArgumentParser(prog="skep_lab.fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, help="draw the requests of another run again")
    parser.add_argument("--cases", type=int, default=20_000, help="requests, at least so many, over all services")
    parser.add_argument(
        "--service", choices=("compute", "admin", "identity", "images", "networks"), help="this one alone"
    )
    parser.add_argument("--postgresql", action="store_true", help="the databases are on a PostgreSQL of the run's own")
    asked = parser.parse_args()
    if not PROGRAM.exists():
        sys.stderr.write("not installed: scripts/bootstrap fuzz\n")
        return 2
    seed = asked.seed if asked.seed is not None else random.SystemRandom().randrange(NEW_SEED)
    sys.stderr.write(f"seed {seed}\n")
    work = Path(tempfile.mkdtemp(prefix="skep-fuzz-"))
    configure(file=LogFile(work / "skep.log"), file_only=True)
    with _configured(work, postgresql=asked.postgresql) as config:
        outcome = asyncio.run(_run(work, config, seed, asked.cases, asked.service))
    sys.stdout.write(f"{msgspec.json.encode(outcome).decode()}\n")
    return 1 if outcome["faults"] else 0


@contextlib.contextmanager
def _configured(work: Path, *, postgresql: bool) -> Iterator[Config]:
    """Yield the configuration of a cloud; where a PostgreSQL has its databases, that runs meanwhile."""
    networks = NetworksSettings(kind="embedded", port=0)
    config = msgspec.structs.replace(http_config(work), networks=networks)
    if not postgresql:
        yield config
        return
    with PostgresServer() as server:
        urls = {name: server.create_database(name) for name in ("api", "cell0", "cell1")}
        database = DatabaseSettings(api_url=urls["api"], cell0_url=urls["cell0"])
        cells = (CellSettings(name="cell1", database_url=urls["cell1"]),)
        yield msgspec.structs.replace(config, database=database, cells=cells)


async def _run(work: Path, config: Config, seed: int, cases: int, only: str | None) -> dict[str, Any]:
    chosen = [one for one in documents() if only in (None, one.service)]
    each = sum(operations(one.document) for one in chosen)
    (work / "hooks.py").write_text(HOOKS)
    (work / "schemathesis.toml").write_text(JUDGED)
    outcome: dict[str, Any] = {"seed": seed, "cases": 0, "faults": 0}
    async with serving_cloud(config, cells=1) as cloud:
        token = await _token(cloud)
        things = await known(cloud, token)
        for number, one in enumerate(chosen):
            file = work / f"{number}-{one.service}.json"
            file.write_bytes(msgspec.json.encode(with_known(one.document, things[one.service])))
        for turn in itertools.count():
            # Operations without parameters have one request each, so that a turn sends fewer than it is told to.
            examples = max(1, round((cases - outcome["cases"]) / each))
            always = ("--seed", str(seed + turn), "--max-examples", str(examples), "--checks", CHECKS, *PLAIN)
            for number, (service, _, headers) in enumerate(chosen):
                file, said = work / f"{number}-{service}.json", work / f"{number}-{service}-{turn}.txt"
                given = {"X-Auth-Token": token, **headers}
                words = [word for name, value in given.items() for word in ("--header", f"{name}: {value}")]
                sent, faults = await _send(("run", file, "--url", _address(cloud, service), *words, *always), said)
                of_service = outcome.setdefault(service, {"cases": 0, "faults": 0})
                for counts in (outcome, of_service):
                    counts["cases"] += sent
                    counts["faults"] += faults
                if faults:
                    sys.stderr.write(said.read_text())
            if outcome["cases"] >= cases:
                break
    outcome["folder"] = str(work)
    return outcome


async def _send(words: Sequence[str | Path], into: Path) -> tuple[int, int]:
    """Have requests sent; how many there were, and how many of them were answered by a fault.

    Raises RuntimeError with the words of the program where it did not come to its end.
    """
    with into.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            PROGRAM,
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=into.parent,
            env={**os.environ, "SCHEMATHESIS_HOOKS": "hooks", "PYTHONPATH": str(into.parent)},
        )
        try:
            await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    said = await asyncio.to_thread(into.read_text)
    counted = re.search(r"(\d+) generated(?:, (\d+) found (\d+) unique failures?)?", said)
    if counted is None:
        raise RuntimeError(said)
    faults = int(counted[3] or 0) if process.returncode else 0
    return int(counted[1]), faults or int(bool(process.returncode))


def _address(cloud: AllInOneCloud, service: str) -> str:
    urls = {"identity": cloud.identity_url, "images": cloud.images_url, "networks": cloud.networks_url}
    url = urls.get(service, cloud.api_url)
    return url.removesuffix("/v2.1").removesuffix("/v3")


async def _token(cloud: AllInOneCloud) -> str:
    """Sign the first admin in."""
    user = {"name": "admin", "password": passwords_in(cloud.clouds_yaml)["admin"], "domain": {"id": "default"}}
    scope = {"project": {"name": "admin", "domain": {"id": "default"}}}
    body = {"auth": {"identity": {"methods": ["password"], "password": {"user": user}}, "scope": scope}}
    async with plain_client(cloud.identity_url) as client:
        answer = await client.post(f"{cloud.identity_url}/auth/tokens", json=body)
        answer.raise_for_status()
        return answer.headers["X-Subject-Token"]


if __name__ == "__main__":
    sys.exit(main())
