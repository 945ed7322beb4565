"""`python -m skep_lab.soak`."""

import sys

from skep_lab.soak.run import main

sys.exit(main())
