"""The inside of hosts as the scheduler holds it: NUMA cells, devices and other nested providers, by row."""
