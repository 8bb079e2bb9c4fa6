"""Posterior heads: distributions over the target."""

from cicpe.beliefs.network.posteriors.gaussian import GaussianConfig, GaussianHead, GaussianPosterior, Posterior
from cicpe.beliefs.network.posteriors.mixture import MixtureConfig, MixtureHead, MixturePosterior

__all__ = [
    "GaussianConfig",
    "GaussianHead",
    "GaussianPosterior",
    "MixtureConfig",
    "MixtureHead",
    "MixturePosterior",
    "Posterior",
]
