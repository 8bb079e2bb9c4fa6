"""Gaussian processes: kernels, exact posteriors, draws and mixtures."""

from cicpe.gp.exact import GPPosterior, condition, log_density, no_observations, noisy_root
from cicpe.gp.kernels import MATERN_32, MATERN_52, SQUARED_EXPONENTIAL, Kernel, correlation, scaled_distance
from cicpe.gp.matheron import lattice_corners, posterior_draws, prior_draws, whitened_error
from cicpe.gp.mixture import FunctionSamples, GPMixture, fit_mixture

__all__ = [
    "MATERN_32",
    "MATERN_52",
    "SQUARED_EXPONENTIAL",
    "FunctionSamples",
    "GPMixture",
    "GPPosterior",
    "Kernel",
    "condition",
    "correlation",
    "fit_mixture",
    "lattice_corners",
    "log_density",
    "no_observations",
    "noisy_root",
    "posterior_draws",
    "prior_draws",
    "scaled_distance",
    "whitened_error",
]
