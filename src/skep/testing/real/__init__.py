"""Real neighbours for tests: each server started on a free loopback port in a directory of its own, and stopped."""
