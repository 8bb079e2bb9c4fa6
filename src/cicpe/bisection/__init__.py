"""Flaky tests: which commit changed how often a test fails, with both failure rates unknown."""
