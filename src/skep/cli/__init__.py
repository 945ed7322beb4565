"""The command line. What it does not do in this process (up, serve, db, doctor, config, demo, bench) goes over HTTP."""
