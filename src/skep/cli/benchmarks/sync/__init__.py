"""`skep bench sync`: schedulers that share host states, measured with the backend of one's choice."""
