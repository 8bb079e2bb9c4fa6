"""Other people's methods, and agents that know the likelihood, behind the same interface as ours."""
