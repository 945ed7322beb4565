"""The decision log: all that a scheduler takes in and each decision that it makes, in the order in which it did.

`entries` is the form of one line, `recording` writes down what happens to `HostStates`, `files` keeps it on disk
within bounds, `reading` takes it up again. `skep.simulator.replay` decides everything once more.
"""
