"""The heaps of a process with many threads are few where it asks for that."""

from __future__ import annotations

import subprocess
import sys

import pytest

THREADS = """
import ctypes, sys, threading
from skep.processes.arenas import keep_few_arenas
if sys.argv[1] == "few":
    keep_few_arenas()
together = threading.Barrier(8)
def take():
    held = [bytearray(2000) for _ in range(100)]
    together.wait()
threads = [threading.Thread(target=take) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
ctypes.CDLL(None).malloc_stats()
"""


def arenas(asked: str) -> int:
    said = subprocess.run([sys.executable, "-c", THREADS, asked], check=True, capture_output=True, text=True).stderr
    return said.count("Arena ")


@pytest.mark.skipif(sys.platform != "linux", reason="glibc is asked")
def test_threads_share_two_heaps_where_they_would_have_more() -> None:
    assert arenas("few") <= 2 < arenas("many")
