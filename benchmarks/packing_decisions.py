"""The former path of `python -m skep_lab.benchmarks.packing_decisions`; it goes in 0.8."""

from skep.testing import run_in_laboratory

run_in_laboratory("benchmarks.packing_decisions", "skep_lab.benchmarks.packing_decisions")
