"""What a decision costs under a policy of placement, with servers of 50 kinds that come and go.

    python -m skep_lab.benchmarks.packing_decisions [POLICY] [--hosts 5000] [--decisions 4000]

POLICY as `skep simulate` names it. Prints one JSON object, microseconds of CPU; `chosen` is a digest of all hosts that
were chosen, so that it can be seen whether two releases decide alike.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import statistics
import time

from skep.domain.request_specs import RequestSpec
from skep.simulator.clouds import HostKind, MadeUp, made_up
from skep.simulator.policies import named
from skep.simulator.simulation import Simulation
from skep.simulator.traces.flavors import Requests

KINDS = 50
SERVERS_OF_A_HOST = 4


def measure(policy: str, hosts: int, decisions: int) -> dict[str, object]:
    """Fill a cloud, then let a server go before each that comes."""
    dice = random.Random(1)
    requests = Requests()
    specs: list[RequestSpec] = [
        requests.spec(
            dice.choice((1, 2, 4, 8, 16)),
            dice.choice((2, 4, 8, 16, 32, 64)) * 1024,
            disk_gb=dice.choice((10, 20, 40, 80)),
        )
        for _ in range(KINDS)
    ]
    kind = HostKind(count=hosts, vcpus=64, memory_gib=256, disk_gib=2000, cpu_allocation_ratio=4.0)
    simulation = Simulation(made_up(MadeUp(hosts=(kind,))), named(policy))
    names = [f"first-{number}" for number in range(hosts * SERVERS_OF_A_HOST)]
    for name in names:
        simulation.arrive(name, dice.choice(specs))
    taken: list[float] = []
    chosen = hashlib.sha256()
    for number in range(decisions):
        leaving = dice.randrange(len(names))
        simulation.depart(names[leaving])
        names[leaving] = f"later-{number}"
        began = time.thread_time()
        simulation.arrive(names[leaving], dice.choice(specs))
        taken.append(1e6 * (time.thread_time() - began))
        chosen.update(str(simulation.node_of(names[leaving])).encode())
    taken.sort()
    return {
        "policy": policy,
        "hosts": hosts,
        "mean_us": round(statistics.mean(taken)),
        "p50_us": round(taken[len(taken) // 2]),
        "p99_us": round(taken[len(taken) * 99 // 100]),
        "chosen": chosen.hexdigest()[:16],
    }


def main() -> None:
    """Run what the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("policy", nargs="?", default="fill")
    parser.add_argument("--hosts", type=int, default=5_000)
    parser.add_argument("--decisions", type=int, default=4_000)
    chosen = parser.parse_args()
    print(json.dumps(measure(chosen.policy, chosen.hosts, chosen.decisions)))


if __name__ == "__main__":
    main()
