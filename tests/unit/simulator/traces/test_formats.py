"""Traces in the three formats, and what is wrong with those that are none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from skep.domain.clock import SECOND
from skep.simulator.traces.reading import read, read_outages
from skep.simulator.traces.rows import BadTrace

HUAWEI = "vmid,cpu,mem,at,lt\n0,4,16,0.0,194.0\n1,1,2,2.5,10\n"
OPENB = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
    "pod-0,12000,16384,1,460,,LS,Running,0,100,0\n"
    "pod-1,500,1024,2,1000,V100M16,LS,Running,5,,5\n"
    "pod-2,500,1024,0,0,,BE,Running,6,7,6\n"
    "pod-3,500,1024,1,100,V100M16|V100M32| ,BE,Running,8,9,8\n"
)
AZURE = (
    "vmId,tenantId,cores,ram,vmTypeId,starttime,endtime\n"
    "7,1,42.0,7.0,0,0.5,inf\n"
    "8,1,200.0,28.0,0,-1497.0,32.5\n"
    "9,2,100.0,3.5,1,-2000.0,0.25\n"
)


@pytest.fixture(name="write")
def write_fixture(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "trace.csv"
        path.write_text(text)
        return path

    return write


def test_huawei(write: Callable[[str], Path]) -> None:
    first, second = read(write(HUAWEI)).servers
    assert (first.name, first.at, first.until) == ("0", 0, 194 * SECOND)
    assert first.spec.resources() == {"VCPU": 4, "MEMORY_MB": 16384}
    assert (second.at, second.until) == (2_500_000, 12_500_000)


def test_openb(write: Callable[[str], Path]) -> None:
    trace = read(write(OPENB))
    assert trace.units == {"VCPU": 1000}
    shared, whole, none, either = trace.servers
    assert shared.spec.resources() == {"VCPU": 12000, "MEMORY_MB": 16384, "CUSTOM_GPU_MILLI": 460}
    assert whole.spec.resources()["CUSTOM_GPU_MILLI"] == 2000
    assert whole.spec.flavor.required_traits() == ("CUSTOM_GPU_V100M16",)
    assert whole.until is None
    assert none.spec.resources() == {"VCPU": 500, "MEMORY_MB": 1024}
    assert either.spec.flavor.extra_specs["trait:any_of"] == "CUSTOM_GPU_V100M16,CUSTOM_GPU_V100M32"


def test_azure(write: Callable[[str], Path]) -> None:
    trace = read(write(AZURE))
    assert trace.units == {"VCPU": 100}
    assert [(server.name, server.at) for server in trace.servers] == [("9", 0), ("8", 0), ("7", 43_200 * SECOND)]
    assert trace.servers[2].until is None
    assert trace.servers[0].spec.resources() == {"VCPU": 100, "MEMORY_MB": 3584}
    assert trace.servers[0].spec.project_id == "tenant-2"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "line 1: these are the columns of no format"),
        ("a,b\n1,2\n", "line 1: these are the columns of no format"),
        ("vmid,cpu,mem,at\n0,4,16,0.0\n", "line 1: for the format huawei there is no column lt"),
        ("name,cpu_milli,memory_mib,num_gpu\n", "for the format openb there is no column gpu_milli, gpu_spec"),
        ("vmid,cpu,mem,at,lt\n", "expected at least one server"),
        (HUAWEI + "2,four,1,1,1\n", "line 4, column cpu: expected a number, found 'four'"),
        (HUAWEI + "2,-4,1,1,1\n", "line 4, column cpu: expected a number from 0"),
        (HUAWEI + "2,1,nan,1,1\n", "line 4, column mem: expected a number, found 'nan'"),
        (HUAWEI + "2,1,1,inf,1\n", "line 4, column at: expected a number from"),
        (HUAWEI + ",1,1,1,1\n", "line 4, column vmid: expected a name, found nothing"),
        (HUAWEI + "2,1,1\n", "line 4: expected 5 values, found 3"),
        (OPENB + "p,1,1,1,2000,,LS,Running,0,1,0\n", "line 6, column gpu_milli: expected at most 1000, found 2000"),
        (OPENB + "p,1,1,33,100,,LS,Running,0,1,0\n", "line 6, column num_gpu: expected at most 32, found 33"),
        (AZURE + "1,1,1,1,0,soon,1\n", "line 5, column starttime: expected a number, found 'soon'"),
        (HUAWEI + "\ud800", "this is no text in UTF-8"),
    ],
)
def test_what_is_wrong_is_said_with_line_and_column(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_bytes(text.encode(errors="surrogatepass"))
    with pytest.raises(BadTrace) as raised:
        read(path)
    assert said in str(raised.value)
    assert "bad.csv" in str(raised.value)


def test_outages(tmp_path: Path) -> None:
    path = tmp_path / "outages.csv"
    path.write_text("host,from,until\nh1,10,20\nh2,5,\n")
    changes = read_outages(path)
    assert [(one.host, one.at, one.up) for one in changes] == [
        ("h1", 10 * SECOND, False),
        ("h1", 20 * SECOND, True),
        ("h2", 5 * SECOND, False),
    ]


def test_an_outage_that_ends_before_it_begins_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "outages.csv"
    path.write_text("host,from,until\nh1,5,1\n")
    with pytest.raises(BadTrace, match="line 2, column until: expected a time after"):
        read_outages(path)
