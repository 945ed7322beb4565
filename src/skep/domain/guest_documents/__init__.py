"""What a server reads about itself: the one source of config drives and of the metadata service.

Names, versions and contents are those of Nova's metadata service and of the EC2 service that it follows.
"""
