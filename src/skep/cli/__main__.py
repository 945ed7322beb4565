"""`python -m skep.cli` is `skep`."""

from skep.cli.main import main

if __name__ == "__main__":
    main()
