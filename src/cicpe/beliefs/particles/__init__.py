"""A posterior over the task's parameters by sequential Monte Carlo."""
