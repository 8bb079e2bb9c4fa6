"""Posterior heads: distributions over the target."""
