"""The benchmarks of placement quality on small made-up traces in the formats of the published ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[3]


def run(data: Path, *arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "skep_lab.benchmarks.quality", *arguments, "--data", str(data)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.fixture
def openb(tmp_path: Path) -> Path:
    folder = tmp_path / "openb"
    folder.mkdir()
    nodes = ["sn,cpu_milli,memory_mib,gpu,model"]
    nodes += [f"node-{number},32000,131072,{2 + 2 * (number % 2)},{'AB'[number % 2]}" for number in range(6)]
    pods = [
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
    ]
    asks = ["4000,8192,1,500,", "8000,16384,1,1000,A|C", "16000,32768,2,1000,B", "2000,4096,0,0,", "4000,8192,1,300,"]
    pods += [f"pod-{number},{asks[number % 5]},LS,Running,0,1,0" for number in range(25)]
    (folder / "openb_node_list_gpu_node.csv").write_text("\n".join(nodes))
    (folder / "openb_pod_list_default.csv").write_text("\n".join(pods))
    return tmp_path


@pytest.fixture
def huawei(tmp_path: Path) -> Path:
    folder = tmp_path / "huawei-east-1"
    folder.mkdir()
    asks = [(1, 2), (4, 8), (16, 32), (2, 4), (64, 128), (8, 16)]
    rows = ["vmid,cpu,mem,at,lt"]
    rows += [
        f"{number},{asks[number * 7 % 6][0]},{asks[number * 7 % 6][1]},{number}.0,{60 + number * 37 % 400}.0"
        for number in range(400)
    ]
    (folder / "Huawei-East-1-lt.csv").write_text("\n".join(rows))
    np.save(folder / "validation-starts-150.npy", np.arange(0, 100, 10))
    return tmp_path


def test_openb(openb: Path) -> None:
    found = run(openb, "openb", "--seeds", "1-2")
    assert found["seeds"] == [1, 2]
    ours = {"FragmentationWeigher", "FragmentationWeigher, in the simulator"}
    assert {"Random", "BestFit", "FGD", *ours} <= found["policies"].keys()
    assert all(0 < row["least"] <= row["mean"] <= row["most"] <= 100 for row in found["policies"].values())
    again = run(openb, "openb", "--seeds", "1-2", "--policy", "FragmentationWeigher")
    assert again["policies"]["FragmentationWeigher"]["mean"] == found["policies"]["FragmentationWeigher"]["mean"]


def test_huawei(huawei: Path) -> None:
    found = run(huawei, "huawei", "--servers", "2")
    assert found["episodes"] == 10
    ours, *services = list(found["policies"])[2:]
    assert ours == "FragmentationWeigher"
    assert services[0].startswith(ours)
    assert {"First-Fit", "Balance-Fit"} < found["policies"].keys()
    assert all(row["mean"] > 0 for row in found["policies"].values())
