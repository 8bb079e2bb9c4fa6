"""Everything that is learned of a family: its prior, its likelihood, what success is and, where asked for, an actor."""

import copy
from typing import final

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from cicpe.beliefs.answers.actor import PosteriorActor
from cicpe.beliefs.answers.frozen import FrozenNetwork
from cicpe.beliefs.answers.joint_heads import Heads
from cicpe.beliefs.answers.network import Codes, LikelihoodNetwork, NetworkSizes
from cicpe.beliefs.answers.prior import Prior, PriorSizes
from cicpe.beliefs.answers.query_scale import QueryScale
from cicpe.beliefs.answers.success import Success
from cicpe.spaces import Space

COMPARED_QUERIES, COMPARED_PLACES = 64, 256
"""How many it is measured at what is lost by a simpler distribution."""
CODE_SIZE = 6
"""Coordinates of a code."""


@final
class AnswerModel(nn.Module):
    """A family as it was learned from simulations.

    Args:
        spaces: Of queries and answers.
        heads: How outputs become probabilities of observations.
        prior: Draws of the answer, and of the nuisance where it can be read.
        context: How many contexts there are.
        codes: How many points stand for a nuisance that cannot be read; 0 where it can.
        success: What a good answer is.
        hidden: Units of the network.
        rng: Draws its first weights.
        offsets: Of the scale on which queries are compared.
    """

    actor: PosteriorActor | None
    """What chooses queries, where an actor was learned."""

    def __init__(
        self,
        spaces: tuple[Space, Space],
        heads: Heads,
        prior: Prior,
        context: int,
        codes: int,
        success: Success,
        hidden: int,
        rng: Generator | None = None,
        offsets: tuple[float, ...] = (),
    ) -> None:
        super().__init__()
        self.query_space, self.answer_space = spaces
        self.query_scale = QueryScale(spaces[0], offsets)
        self.heads, self.prior, self.success = heads, prior, success
        nuisance = CODE_SIZE if codes else prior.sizes.nuisance
        dims = spaces[0].dim, spaces[1].dim
        self.network = LikelihoodNetwork(NetworkSizes(*dims, nuisance, context, heads.parameters, hidden), rng)
        self.codes = Codes(codes, CODE_SIZE, dims[1], rng) if codes else None
        self.actor = None

    @classmethod
    def empty(
        cls,
        spaces: tuple[Space, Space],
        heads: Heads,
        sizes: PriorSizes,
        context: int,
        codes: int,
        success: Success,
        hidden: int,
        offsets: tuple[float, ...] = (),
    ) -> "AnswerModel":
        """A model whose weights have yet to be loaded."""
        return cls(spaces, heads, Prior(sizes, spaces[1]), context, codes, success, hidden, offsets=offsets)

    def with_actor(self) -> "AnswerModel":
        """The same model, whose parts are shared, with an actor that has yet to learn."""
        model = copy.copy(self)
        model._modules = dict(self._modules)
        model.actor = PosteriorActor(self.query_space.dim, self.network.sizes.context)
        return model

    def frozen_network(self) -> FrozenNetwork:
        """The network as it is now, to be asked often."""
        return FrozenNetwork(self.network)

    @torch.no_grad()
    def lost_as_gaussians(self, context_C: Float[Tensor, " C"] | None = None) -> float:
        """How much worse Gaussians are than the mixtures that were learned, in nats per observation.

        Args:
            context_C: What is known; that of an average task where it is not given.
        """
        if not any(head.is_mixture for head in self.heads.heads):
            return 0.0
        rng = torch.Generator().manual_seed(0)
        query_AQ = self.query_scale.to_unit(self.query_scale.sample(COMPARED_QUERIES, rng))
        place_MV = self.prior.draws_MV[:COMPARED_PLACES]
        if self.codes is not None:
            codes = torch.arange(len(place_MV)) % len(self.codes.points_KD)
            place_MV = torch.cat([place_MV[:, : self.answer_space.dim], self.codes.points_KD[codes]], dim=1)
        context_C = self.network.context_centre[: self.network.sizes.context] if context_C is None else context_C
        parameters = self.network(query_AQ[:, None], place_MV[None], context_C[None, None])
        settled = self.heads.settled(parameters).movedim(-1, 0)
        (mixtures, of_mixtures), (gaussians, of_gaussians) = (
            self.heads.quick(settled, plain) for plain in (False, True)
        )
        uniform = torch.rand((*parameters.shape[:-1], len(self.heads.heads), 2), generator=rng)
        drawn = mixtures.draw(of_mixtures, uniform)
        log_p = mixtures.settled_log_probability(of_mixtures, drawn)
        return float((log_p - gaussians.settled_log_probability(of_gaussians, drawn)).mean())

    def history_loss(
        self,
        query_BTQ: Float[Tensor, "B T Q"],
        encoded_BTY: Float[Tensor, "B T Y"],
        place_BV: Float[Tensor, "B V"],
        context_BC: Float[Tensor, "B C"],
    ) -> Float[Tensor, " B"]:
        """Negative log-likelihood per observation of histories, codes marginalised."""
        if self.codes is None:
            parameters = self.network(query_BTQ, place_BV[:, None], context_BC[:, None])
            return -self.heads.log_probability(parameters, encoded_BTY).mean(dim=1)
        points_KD = self.codes.points_KD
        k = len(points_KD)
        answer_BKX = place_BV[:, None].expand(-1, k, -1)
        place_BKV = torch.cat([answer_BKX, points_KD.expand(len(place_BV), -1, -1)], dim=-1)
        parameters = self.network(query_BTQ[:, :, None], place_BKV[:, None], context_BC[:, None, None])
        log_BK = self.heads.log_probability(parameters, encoded_BTY[:, :, None]).sum(dim=1)
        return -(log_BK + self.codes.log_share(place_BV)).logsumexp(dim=-1) / query_BTQ.shape[1]
