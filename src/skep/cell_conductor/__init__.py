"""The conductor inside a cell: tells hosts what to build, destroy and switch, and writes what came of it."""
