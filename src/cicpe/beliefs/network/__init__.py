"""A trained network: memory, posterior, critic and query rule."""
