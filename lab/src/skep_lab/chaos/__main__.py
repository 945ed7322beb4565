"""`python -m skep_lab.chaos`."""

import sys

from skep_lab.chaos.run import main

sys.exit(main())
