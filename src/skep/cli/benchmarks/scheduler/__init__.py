"""`skep bench scheduler`: how fast placement decides, over made-up hosts, for one kind of load at a time."""
