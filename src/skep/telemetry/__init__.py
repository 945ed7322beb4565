"""What Skep tells its operators: log lines, metrics, the steps of a build, notifications."""
