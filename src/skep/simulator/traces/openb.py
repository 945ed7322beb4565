"""Alibaba's GPU cluster of 2023: pods and nodes, CPU and GPU in thousandths, memory in MiB, times in seconds."""

from __future__ import annotations

from pathlib import Path

from skep.simulator.events import Server, Trace
from skep.simulator.traces.flavors import GPU_MILLI, Requests
from skep.simulator.traces.rows import Row, rows_of

COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "creation_time", "deletion_time")
THOUSANDTHS = 1000


def read(path: Path) -> Trace:
    """Read the pods. Raises BadTrace naming line and column, OSError as the disk does."""
    requests = Requests()
    servers = [
        Server(
            name=row.name("name"),
            at=row.time("creation_time"),
            until=row.time("deletion_time") if row.text("deletion_time") else None,
            spec=requests.spec(row.amount("cpu_milli"), row.amount("memory_mib"), extra_specs=_gpus(row)),
        )
        for row in rows_of(path, COLUMNS)
    ]
    return Trace(name=path.stem, servers=tuple(servers), units={"VCPU": THOUSANDTHS})


def _gpus(row: Row) -> tuple[tuple[str, str], ...]:
    """Return what is asked of GPUs: as much of each of so many, of one model if one is named."""
    count = row.amount("num_gpu")
    if not count:
        return ()
    share = row.amount("gpu_milli", least=1)
    if share > THOUSANDTHS:
        raise row.refuse("gpu_milli", f"expected at most {THOUSANDTHS}, found {share}")
    specs = [(f"resources:{GPU_MILLI}", str(count * share))]
    model = row.text("gpu_spec")
    if "|" in model:
        raise row.refuse("gpu_spec", f"expected one model, found {model[:40]!r}")
    if model:
        specs.append((f"trait:{model_trait(model)}", "required"))
    return tuple(specs)


def model_trait(model: str) -> str:
    """Return the trait of hosts that have GPUs of a model."""
    name = "".join(character if character.isalnum() else "_" for character in model.upper())
    return f"CUSTOM_GPU_{name}"
