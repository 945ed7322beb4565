"""The former name of the command `python -m skep_lab.soak`."""

from skep.testing import run_in_laboratory

if __name__ == "__main__":
    run_in_laboratory("skep.testing.soak", "skep_lab.soak")
