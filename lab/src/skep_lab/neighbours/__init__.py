"""Real services of others beside a cloud, on loopback, with files of their own."""
