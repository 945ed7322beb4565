"""What every owner of work shares: leases that say it lives, and loops that look at the whole."""
