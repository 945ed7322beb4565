"""The former path of `python -m skep_lab.benchmarks.transport_calls`; it goes in 0.8."""

from skep.testing import run_in_laboratory

run_in_laboratory("benchmarks.transport_calls", "skep_lab.benchmarks.transport_calls")
