"""The former name of the command `python -m skep_lab.chaos`."""

from skep.testing import run_in_laboratory

if __name__ == "__main__":
    run_in_laboratory("skep.testing.chaos", "skep_lab.chaos")
