"""How long a list of a project's servers takes over many cells, and while one of them is down.

    python -m skep_lab.benchmarks.cell_lists [--database sqlite|postgres] [--cells 10] [--servers 1000]
                                              [--requests 200] [--clients 1] [--profile]

One process, no socket: from the request to the encoded body. `down`: with PostgreSQL one cell's server is halted
(SIGSTOP), with SQLite its database is one that never answers. Prints one JSON object, milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import cProfile
import json
import logging
import pstats
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import structlog

from skep.api.app import ComputeApi
from skep.api.server_routes import SERVER_ROUTES
from skep.processes.servers.postgres import PostgresServer
from skep_lab.compute_api.hanging import HangingDatabase
from skep_lab.compute_api.many_cells import ManyCells, cell_number, many_cells


@contextlib.contextmanager
def places(kind: str, folder: Path, cells: int) -> Iterator[tuple[dict[str, Path | str], PostgresServer | None]]:
    """Make the databases; the last cell's has a server of its own."""
    names = ["api", "cell0", *(f"cell{number}" for number in range(1, cells + 1))]
    if kind == "sqlite":
        yield {name: folder / f"{name}.db" for name in names}, None
        return
    with PostgresServer(fsync="on") as server, PostgresServer(fsync="on") as apart:
        yield {name: (apart if name == names[-1] else server).create_database(name) for name in names}, apart


async def ask(api: ComputeApi, path: str) -> tuple[float, int, dict[str, Any]]:
    """Ask once; return seconds, status and the body."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": "GET",
        "path": f"/v2.1{path}",
        "raw_path": f"/v2.1{path}".encode(),
        "query_string": query.encode(),
        "headers": [
            (b"x-auth-token", b"member"),
            (b"openstack-api-version", b"compute 2.96"),
            (b"host", b"cloud"),
        ],
        "scheme": "http",
        "client": ("127.0.0.1", 1),
    }
    began = time.perf_counter()
    await api(scope, receive, send)
    seconds = time.perf_counter() - began
    return seconds, sent[0]["status"], json.loads(sent[1]["body"])


async def measure(api: ComputeApi, path: str, requests: int, clients: int) -> dict[str, Any]:
    """Ask again and again, by several clients at once."""
    taken: list[float] = []
    shown: set[tuple[int, int, int]] = set()

    async def client() -> None:
        for _ in range(requests // clients):
            seconds, status, body = await ask(api, path)
            taken.append(seconds * 1000)
            found = body["servers"]
            shown.add((status, len(found), sum(one.get("status") == "UNKNOWN" for one in found)))

    began = time.process_time()
    await asyncio.gather(*(client() for _ in range(clients)))
    cpu = (time.process_time() - began) * 1000 / len(taken)
    taken.sort()
    return {
        "p50": round(statistics.median(taken), 1),
        "p99": round(taken[min(len(taken) - 1, len(taken) * 99 // 100)], 1),
        "max": round(taken[-1], 1),
        "cpu": round(cpu, 1),
        "status, servers, unknown": sorted(shown),
    }


def first_silent(cloud: ManyCells, cells: int) -> None:
    """Let the last cell answer nothing more."""
    last = cloud.services.cells[cell_number(cells)]
    assert isinstance(last, HangingDatabase)
    last.go_on.clear()


async def run(options: argparse.Namespace) -> dict[str, Any]:
    """Fill the cells, measure with all of them, with one down, and after it is back."""
    report: dict[str, Any] = {"database": options.database, "cells": options.cells, "servers": options.servers}
    with (
        tempfile.TemporaryDirectory() as folder,
        places(options.database, Path(folder), options.cells) as (locations, apart),
    ):
        hang = apart is None
        wrap = (lambda one: HangingDatabase(one, hangs=False)) if hang else (lambda one: one)
        async with many_cells(locations, wrap=wrap) as cloud:
            api = ComputeApi(cloud.services, SERVER_ROUTES)
            await cloud.fill(options.servers)
            for path in ("/servers/detail", "/servers", "/servers/detail?limit=50"):
                await measure(api, path, 2 * options.clients, options.clients)
                report[path] = await measure(api, path, options.requests, options.clients)
            if options.profile:
                profile = cProfile.Profile()
                profile.enable()
                await measure(api, "/servers/detail", 50, 1)
                profile.disable()
                pstats.Stats(profile).sort_stats("tottime").print_stats(35)
            if apart is None:
                first_silent(cloud, options.cells)
            else:
                apart.pause()
            try:
                report["down"] = await measure(api, "/servers/detail", options.requests, options.clients)
            finally:
                if apart is not None:
                    apart.resume()
                else:
                    last = cloud.services.cells[cell_number(options.cells)]
                    assert isinstance(last, HangingDatabase)
                    last.go_on.set()
    return report


def main() -> None:
    """Read the command line and print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--cells", type=int, default=10)
    parser.add_argument("--servers", type=int, default=1000)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--clients", type=int, default=1)
    parser.add_argument("--profile", action="store_true")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    print(json.dumps(asyncio.run(run(parser.parse_args())), indent=1))


if __name__ == "__main__":
    main()
