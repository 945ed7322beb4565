"""A cloud of many processes on one machine: NATS and PostgreSQL beside us, each role a child process."""
