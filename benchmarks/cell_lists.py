"""The former path of `python -m skep_lab.benchmarks.cell_lists`; it goes in 0.8."""

from skep.testing import run_in_laboratory

run_in_laboratory("benchmarks.cell_lists", "skep_lab.benchmarks.cell_lists")
