"""What Skep needs of the services around it: one Protocol each, and the adapters to the real ones."""
