"""Posterior heads: distributions over the target."""

from typing import TYPE_CHECKING

from cicpe.lazy import lazily

if TYPE_CHECKING:
    from cicpe.beliefs.network.posteriors.gaussian import GaussianConfig as GaussianConfig
    from cicpe.beliefs.network.posteriors.gaussian import GaussianHead as GaussianHead
    from cicpe.beliefs.network.posteriors.gaussian import GaussianPosterior as GaussianPosterior
    from cicpe.beliefs.network.posteriors.gaussian import Posterior as Posterior
    from cicpe.beliefs.network.posteriors.mixture import MixtureConfig as MixtureConfig
    from cicpe.beliefs.network.posteriors.mixture import MixtureHead as MixtureHead
    from cicpe.beliefs.network.posteriors.mixture import MixturePosterior as MixturePosterior
else:
    __getattr__, __dir__, __all__ = lazily(
        __name__,
        {
            "gaussian": "GaussianConfig GaussianHead GaussianPosterior Posterior",
            "mixture": "MixtureConfig MixtureHead MixturePosterior",
        },
    )
