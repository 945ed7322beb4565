"""What went wrong, told from outside: logs of hosts, rows, and what users see."""
