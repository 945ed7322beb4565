"""What the neighbours load: it is run by their own interpreters, and imports nothing of Skep's."""
