"""Agents that know the likelihood: how far from optimal are the others? Each gives its exact probability of success."""
