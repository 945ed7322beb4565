"""Alibaba's GPU cluster of 2023: pods and nodes, CPU and GPU in thousandths, memory in MiB, times in seconds.

A pod's GPUs are different ones of its host, and of each it has the same share. So hosts have a nested provider for each
GPU, and a pod asks for a group of resources for each of its own.
"""

from __future__ import annotations

from pathlib import Path

from skep.domain.nested.reading import MOST_GROUPS
from skep.domain.nested.wanted import GROUP_POLICY
from skep.simulator.events import Trace, TracedServer
from skep.simulator.traces.flavors import GPU_MILLI, Requests
from skep.simulator.traces.rows import TraceRow, rows_of

COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "creation_time", "deletion_time")
THOUSANDTHS = 1000


def read(path: Path) -> Trace:
    """Read the pods. Raises BadTrace naming line and column, OSError as the disk does."""
    requests = Requests()
    servers = [
        TracedServer(
            name=row.name("name"),
            at=row.time("creation_time"),
            until=row.time("deletion_time") if row.text("deletion_time") else None,
            spec=requests.spec(row.amount("cpu_milli"), row.amount("memory_mib"), extra_specs=_gpus(row)),
        )
        for row in rows_of(path, COLUMNS)
    ]
    return Trace(name=path.stem, servers=tuple(servers), units={"VCPU": THOUSANDTHS})


def _gpus(row: TraceRow) -> tuple[tuple[str, str], ...]:
    """Return what is asked of GPUs: as much of each of so many different ones, of one of the models that are named."""
    count = row.amount("num_gpu")
    if not count:
        return ()
    if count > MOST_GROUPS:
        raise row.refuse("num_gpu", f"expected at most {MOST_GROUPS}, found {count}")
    share = row.amount("gpu_milli", least=1)
    if share > THOUSANDTHS:
        raise row.refuse("gpu_milli", f"expected at most {THOUSANDTHS}, found {share}")
    specs = [(f"resources{number}:{GPU_MILLI}", str(share)) for number in range(1, count + 1)]
    if count > 1:
        specs.append((GROUP_POLICY, "isolate"))
    models = [model.strip() for model in row.text("gpu_spec").split("|")]
    traits = sorted({model_trait(model) for model in models if model})
    if len(traits) == 1:
        specs.append((f"trait:{traits[0]}", "required"))
    elif traits:
        specs.append(("trait:any_of", ",".join(traits)))
    return tuple(specs)


def model_trait(model: str) -> str:
    """Return the trait of hosts that have GPUs of a model."""
    name = "".join(character if character.isascii() and character.isalnum() else "_" for character in model.upper())
    return f"CUSTOM_GPU_{name}"
