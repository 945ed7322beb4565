"""How well policies place two published traces. Run by hand; prints one JSON object, and a table with --markdown.

    SKEP_DATA=DIRECTORY python -m skep_lab.benchmarks.quality [openb|huawei] [--seeds 42-51] [--markdown]

The directory holds `openb/` and `huawei-east-1/` with the files that their authors publish.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from skep.placement.slots import Worthing
from skep_lab.benchmarks.quality import huawei, openb
from skep_lab.benchmarks.quality.huawei_policies import balance_fit, first_fit
from skep_lab.benchmarks.quality.huawei_policies import fragmentation as fragmentation_on_nodes
from skep_lab.benchmarks.quality.huawei_service import FRAGMENTATION, ServiceEpisode, learned_from
from skep_lab.benchmarks.quality.openb_policies import fragmentation as fragmentation_on_gpus
from skep_lab.benchmarks.quality.openb_policies import published
from skep_lab.benchmarks.quality.openb_simulator import Experiment

FILLING = Worthing(size_exponent=0.5, slot_exponent=0.5)
"""For clouds that fill up: nobody leaves."""
CHURNING = Worthing(size_exponent=3.0, slot_exponent=1.0, departures=20)
"""For clouds from which servers leave all the time, with queues for large ones."""
SERVICE = {
    "FragmentationWeigher, decided and claimed by the service's code": FRAGMENTATION,
    "BestFitWeigher, by the service's code": {"BestFitWeigher": 1.0},
    "BestFitWeigher with lifetimes, by the service's code": {"BestFitWeigher": 1.0, "LifetimeWeigher": 10.0},
    "FragmentationWeigher with lifetimes, by the service's code": FRAGMENTATION | {"LifetimeWeigher": 10.0},
}
"""Weighers by the name of the policy."""
SIMULATED = "FragmentationWeigher, in the simulator"
LEARNED_ROWS = 50_000
"""Kinds of Huawei-East-1 and how often they come are taken from these first rows."""


def run_openb(data: Path, seeds: range, policies: list[str]) -> dict[str, Any]:
    """Return the percentage of GPUs that each policy gives out, for each seed."""
    files = data / "openb" / "openb_node_list_gpu_node.csv", data / "openb" / "openb_pod_list_default.csv"
    nodes, pods = openb.read_nodes(files[0]), openb.read_pods(files[1])
    known: dict[str, Callable[[], openb.NodePolicy]] = {
        **published(pods),
        "FragmentationWeigher": lambda: fragmentation_on_gpus(nodes, pods, FILLING),
    }
    rows = {}
    for name in policies or (*known, SIMULATED):
        began = time.process_time()
        if name == SIMULATED:
            experiment = Experiment(*files, FILLING)
            runs = [experiment.allocated(seed) for seed in seeds]
        else:
            policy = known[name]()
            runs = [openb.allocated(nodes, pods, policy, seed) for seed in seeds]
        rows[name] = {
            "mean": round(statistics.mean(runs), 2),
            "least": round(min(runs), 2),
            "most": round(max(runs), 2),
            "cpu_s": round(time.process_time() - began, 1),
        }
    return {"trace": "openb", "unit": "% of GPUs allocated", "seeds": [seeds.start, seeds.stop - 1], "policies": rows}


def run_huawei(data: Path, servers: int, policies: list[str]) -> dict[str, Any]:
    """Return the score of each policy on the starts for validation: seconds."""
    folder = data / "huawei-east-1"
    trace = huawei.read_trace(folder / "Huawei-East-1-lt.csv")
    starts = [int(start) for start in np.load(folder / "validation-starts-150.npy")]
    lengths = [huawei.Episode(trace, start, servers).length(first_fit) + huawei.FURTHER for start in starts]
    known: dict[str, Callable[[], huawei.Policy]] = {
        "First-Fit": lambda: first_fit,
        "Balance-Fit": lambda: balance_fit,
        "FragmentationWeigher": lambda: fragmentation_on_nodes(trace[:LEARNED_ROWS], CHURNING),
    }
    mix = learned_from(trace[:LEARNED_ROWS])
    rows = {}
    for name in policies or (*known, *SERVICE):
        began = time.process_time()
        policy = known[name]() if name in known else first_fit
        waits = [
            (
                huawei.Episode(trace, start, servers)
                if name in known
                else ServiceEpisode(trace, start, servers, CHURNING, mix, SERVICE[name])
            ).run(policy, length)
            for start, length in zip(starts, lengths, strict=True)
        ]
        mean = round(huawei.trimmed_mean(waits), 3)
        rows[name] = {"mean": mean, "cpu_s": round(time.process_time() - began, 1)}
    unit = "s waited in an episode, mean without the least and largest tenth"
    return {"trace": "Huawei-East-1", "unit": unit, "servers": servers, "episodes": len(starts), "policies": rows}


def markdown(found: dict[str, Any]) -> str:
    """Return a table of what was found."""
    rows = found["policies"]
    columns = list(next(iter(rows.values())))
    lines = [f"| {found['trace']}: {found['unit']} | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    lines += [f"| {name} | {' | '.join(f'{row[column]:,}' for column in columns)} |" for name, row in rows.items()]
    return "\n".join(lines)


def main() -> None:
    """Run what the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", choices=("openb", "huawei"))
    parser.add_argument("--data", type=Path, default=os.environ.get("SKEP_DATA"))
    parser.add_argument("--seeds", default="42-51", help="openb: the first and the last seed")
    parser.add_argument("--servers", type=int, default=5, help="huawei: servers of a cluster")
    parser.add_argument("--policy", action="append", default=[], help="this policy alone; may be repeated")
    parser.add_argument("--markdown", action="store_true", help="a table instead of JSON")
    chosen = parser.parse_args()
    if chosen.data is None:
        parser.error("--data or SKEP_DATA must name the directory of the traces")
    if chosen.trace == "openb":
        first, _, last = chosen.seeds.partition("-")
        found = run_openb(Path(chosen.data), range(int(first), int(last or first) + 1), chosen.policy)
    else:
        found = run_huawei(Path(chosen.data), chosen.servers, chosen.policy)
    print(markdown(found) if chosen.markdown else json.dumps(found))


if __name__ == "__main__":
    main()
