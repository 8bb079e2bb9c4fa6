"""Memories: networks that encode a history."""
