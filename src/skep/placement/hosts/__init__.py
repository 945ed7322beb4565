"""What is known of all hosts, as columns, and who puts what into them."""
