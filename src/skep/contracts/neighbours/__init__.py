"""Identity and images for tests: the embedded services, and what every such service must do."""
