"""Gaussian processes: kernels, exact posteriors, draws and mixtures."""
