"""Guarantees: stop thresholds, certificates and their statistics."""
