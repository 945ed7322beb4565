"""The audit: whether what the databases and the host states say of servers agrees. It reads and changes nothing."""
