"""What breaks, compares and measures whole clouds: chaos, soak, crash walks, the reference scheduler, benchmarks.

The product never imports it; tests may. `scripts/bootstrap lab` installs it into a clone.
"""
