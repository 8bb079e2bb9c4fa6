"""Conformance suites that a user's own classes can run."""

from cicpe.testing.agents import check_agent
from cicpe.testing.memories import check_memory
from cicpe.testing.problems import check_problem
from cicpe.testing.stores import check_store

__all__ = ["check_agent", "check_memory", "check_problem", "check_store"]
