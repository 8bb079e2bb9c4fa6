"""The likelihood network once it is trained: many queries of one set of places, with little overhead.

A particle filter asks for a few thousand pairs of a query and a place at a time, so often that what an operator costs
beside its arithmetic counts. Weights are put together once, results are written where they are used next, and pairs are
worked on in pieces that fit a cache. The figures are those of ``LikelihoodNetwork.at`` up to rounding.

Shapes: T queries, N places, F features of a pair, Q query, X answer, V place, H hidden units, P head parameters,
C context.
"""

from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from cicpe.beliefs.answers.network import SOFTNESS, LikelihoodNetwork, PreparedPlaces

PAIRS = 2048
"""Pairs of a query and a place that are worked on at once: what fits a cache."""


@final
class FrozenNetwork:
    """Head parameters of every query at every place.

    Args:
        network: What was trained; a later change of its weights is not seen.
    """

    def __init__(self, network: LikelihoodNetwork) -> None:
        self.network, self.sizes = network, network.sizes
        rows = network._rows
        with torch.no_grad():
            of_query = network.static_in[rows.query]
            if self.sizes.comparable:
                of_query = of_query + network.static_in[rows.apart]
            self._query_in_QH = of_query.contiguous()
            self._known_in = network.static_in[rows.known]
            self._pair_in_HF = torch.cat([network.static_in[rows.pair], network.wave_in]).T.contiguous()
            self._middle_HH = network.middle.T.contiguous()
            self._out_PH = network.out.T.contiguous()

    @torch.no_grad()
    def __call__(
        self, query_TQ: Float[Tensor, "T Q"], places: PreparedPlaces, context_C: Float[Tensor, " C"]
    ) -> Float[Tensor, "T N P"]:
        """Head parameters; query and place are in unit coordinates.

        Args:
            query_TQ: The queries.
            places: N of them, prepared by the network.
            context_C: What is known.

        Returns:
            The parameters of every pair.
        """
        size = max(1, PAIRS // places.answer.shape[-1])
        pieces = query_TQ.split(size)  # type: ignore[no-untyped-call]
        known_H = self.network.known_features(context_C) @ self._known_in
        parts = [self._at(piece, places, known_H) for piece in pieces]
        return (parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)).movedim(0, -1)

    def _at(self, query_TQ: Tensor, places: PreparedPlaces, known_H: Tensor) -> Float[Tensor, "P T N"]:
        t, n = len(query_TQ), places.answer.shape[-1]
        pairs_FTN = torch.empty(self._pair_in_HF.shape[1], t, n)
        self._compare(query_TQ, places, pairs_FTN)
        alone_HT = (query_TQ @ self._query_in_QH + known_H).T
        hidden = torch.mm(self._pair_in_HF, pairs_FTN.flatten(1)).view(-1, t, n)
        hidden.add_(alone_HT[:, :, None]).mul_(places.gain[:, None]).add_(places.shift[:, None])
        nn.functional.silu(hidden, inplace=True)
        middle = torch.mm(self._middle_HH, hidden.flatten(1)).view(-1, t, n)
        hidden.add_(nn.functional.silu(middle.add_(places.middle_shift[:, None]), inplace=True))
        return torch.mm(self._out_PH, hidden.flatten(1)).view(-1, t, n).add_(places.out[:, None])

    def _compare(self, query_TQ: Tensor, places: PreparedPlaces, into_FTN: Tensor) -> None:
        """Writes what depends on a query and a place together."""
        sizes, network = self.sizes, self.network
        q, waves, shared = sizes.query, sizes.waves, sizes.shared_waves
        line_WT1 = (query_TQ @ network.direction[:q]).T[:, :, None]
        angle = torch.addcmul(places.turn[:, None], line_WT1, places.stretch[:, None])
        first = len(into_FTN) - 2 * (waves + shared)
        torch.sin(angle, out=into_FTN[first : first + waves])
        torch.cos(angle, out=into_FTN[first + waves : first + 2 * waves])
        if not sizes.comparable:
            return
        apart_QTN = query_TQ.T[:, :, None] - places.answer[:, None]
        size = torch.abs(apart_QTN, out=into_FTN[:q])
        for k, soft in enumerate(SOFTNESS, start=1):
            part = torch.add(size, soft, out=into_FTN[k * q : (k + 1) * q])
            torch.div(apart_QTN, part, out=part)
        squared, norm, log_norm, product = into_FTN[(1 + len(SOFTNESS)) * q : first]
        torch.mean(apart_QTN.square(), dim=0, out=squared)
        torch.add(squared, 1e-12, out=norm).sqrt_()
        torch.add(norm, 0.02, out=log_norm).log_()
        torch.mm(query_TQ, places.answer, out=product)
        if shared:
            angle = apart_QTN[:, None] * places.rates[:, None]
            torch.mean(angle.sin(), dim=0, out=into_FTN[-2 * shared : -shared])
            torch.mean(angle.cos_(), dim=0, out=into_FTN[-shared:])
