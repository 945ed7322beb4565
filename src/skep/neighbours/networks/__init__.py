"""The ports towards networks."""
