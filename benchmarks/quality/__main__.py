"""The former path of `python -m skep_lab.benchmarks.quality`; it goes in 0.8."""

from skep.testing import run_in_laboratory

run_in_laboratory("benchmarks.quality", "skep_lab.benchmarks.quality")
