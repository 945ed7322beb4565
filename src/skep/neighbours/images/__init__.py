"""What servers boot from."""
