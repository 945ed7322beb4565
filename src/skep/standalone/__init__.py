"""Identity and images for a cloud that has no Keystone and no Glance."""
