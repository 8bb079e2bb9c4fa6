"""Beliefs: what an agent makes of a history. One folder per kind."""
