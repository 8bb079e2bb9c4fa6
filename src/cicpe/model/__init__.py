"""A trained model and its folder on disk."""
