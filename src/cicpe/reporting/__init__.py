"""A page about a model or a comparison: figures and numbers in one file that needs nothing else."""
