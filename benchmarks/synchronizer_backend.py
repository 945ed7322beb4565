"""The former path of `python -m skep_lab.benchmarks.synchronizer_backend`; it goes in 0.8."""

from skep.testing import run_in_laboratory

run_in_laboratory("benchmarks.synchronizer_backend", "skep_lab.benchmarks.synchronizer_backend")
