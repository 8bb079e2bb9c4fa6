"""Gaussian processes: kernels, exact posteriors, draws and mixtures."""

from typing import TYPE_CHECKING

from cicpe.lazy import lazily

if TYPE_CHECKING:
    from cicpe.gp.exact import GPPosterior as GPPosterior
    from cicpe.gp.exact import condition as condition
    from cicpe.gp.exact import log_density as log_density
    from cicpe.gp.exact import no_observations as no_observations
    from cicpe.gp.exact import noisy_root as noisy_root
    from cicpe.gp.kernels import MATERN_32 as MATERN_32
    from cicpe.gp.kernels import MATERN_52 as MATERN_52
    from cicpe.gp.kernels import SQUARED_EXPONENTIAL as SQUARED_EXPONENTIAL
    from cicpe.gp.kernels import Kernel as Kernel
    from cicpe.gp.kernels import correlation as correlation
    from cicpe.gp.kernels import scaled_distance as scaled_distance
    from cicpe.gp.matheron import lattice_corners as lattice_corners
    from cicpe.gp.matheron import posterior_draws as posterior_draws
    from cicpe.gp.matheron import prior_draws as prior_draws
    from cicpe.gp.matheron import whitened_error as whitened_error
    from cicpe.gp.mixture import FunctionSamples as FunctionSamples
    from cicpe.gp.mixture import GPMixture as GPMixture
    from cicpe.gp.mixture import fit_mixture as fit_mixture
else:
    __getattr__, __dir__, __all__ = lazily(
        __name__,
        {
            "exact": "GPPosterior condition log_density no_observations noisy_root",
            "kernels": "MATERN_32 MATERN_52 SQUARED_EXPONENTIAL Kernel correlation scaled_distance",
            "matheron": "lattice_corners posterior_draws prior_draws whitened_error",
            "mixture": "FunctionSamples GPMixture fit_mixture",
        },
    )
