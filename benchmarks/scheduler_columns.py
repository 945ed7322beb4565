"""The former path of `python -m skep_lab.benchmarks.scheduler_columns`; it goes in 0.8."""

from skep.testing import run_in_laboratory

run_in_laboratory("benchmarks.scheduler_columns", "skep_lab.benchmarks.scheduler_columns")
