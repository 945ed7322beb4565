"""The compute API: Nova's v2.1 with its microversions, over rows and messages."""
