"""The likelihood network once it is trained: many queries of one set of places, with little overhead.

A particle filter asks for a few thousand pairs of a query and a place at a time, so often that what an operator costs
beside its arithmetic counts. Weights are put together once, so that one product does what several did; results are
written where they are used next; and pairs are worked on in pieces that fit a cache. The figures are those of
``LikelihoodNetwork`` up to rounding.

Shapes: T queries, N places, F features of a pair, A angles of a pair, Q query, X answer, V place, H hidden units,
P head parameters, C context.
"""

from typing import NamedTuple, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from cicpe.beliefs.answers.network import FEATURES, SOFTNESS, LikelihoodNetwork

PAIRS = 2048
"""Pairs of a query and a place that are worked on at once: what fits a cache."""


class FrozenPlaces(NamedTuple):
    """What the network makes of places before it sees a query, with room for the queries of a piece."""

    answer_X1N: Float[Tensor, "X 1 N"]
    stretch_W1N: Float[Tensor, "wave 1 N"]
    turn_W1N: Float[Tensor, "wave 1 N"]
    rates_S1N: Float[Tensor, "shared_wave 1 N"]
    gain_H1N: Float[Tensor, "H 1 N"]
    shift_H1N: Float[Tensor, "H 1 N"]
    middle_shift_H1N: Float[Tensor, "H 1 N"]
    out_P1N: Float[Tensor, "P 1 N"]


@final
class FrozenNetwork:
    """Head parameters of every query at every place.

    Args:
        network: What was trained; a later change of its weights is not seen.
    """

    @torch.no_grad()
    def __init__(self, network: LikelihoodNetwork) -> None:
        self.sizes = sizes = network.sizes
        rows, own = network._rows, slice(sizes.query, sizes.query + sizes.answer)
        of_query, of_place = network.static_in[rows.query], network.static_in[rows.place]
        if sizes.comparable:
            of_query = of_query + network.static_in[rows.apart]
            of_place = of_place.clone()
            of_place[: sizes.answer] -= network.static_in[rows.apart]
        self._network = network
        self._query_in_MQ = _transposed(torch.cat([of_query, network.direction[: sizes.query]], dim=1))
        self._known_in_KM = nn.functional.pad(network.static_in[rows.known], (0, sizes.waves))
        self._embed_FV, self._embed_bias_F1 = _transposed(network.embed_in), network.embed_bias[:, None].clone()
        # What is linear in a place and its learned features, and what is linear in the place alone, with their biases.
        line = torch.zeros(len(of_place), sizes.waves)
        line[: sizes.answer] = network.direction[own]
        units, waves = torch.zeros(sizes.hidden), torch.zeros(sizes.waves)
        parts = [
            (network.bend, torch.cat([waves, network.shared_rates])),
            (network.turn, waves),
            (network.gain, units + 1),
            (network.shift, units),
            (network.middle_shift, units),
            (network.out_code, network.out_bias),
            (nn.functional.pad(of_place, (0, 0, 0, FEATURES)), network.bias),
            (nn.functional.pad(line, (0, 0, 0, FEATURES)), waves),
        ]
        self._parts = [len(bias) for _, bias in parts]
        self._code_in_MV = _transposed(torch.cat([weight for weight, _ in parts], dim=1))
        self._code_bias_M1 = torch.cat([bias for _, bias in parts])[:, None]
        # Waves that coordinates share are their mean, which is linear too.
        by_wave = network.wave_in.split([sizes.waves] * 2 + [sizes.shared_waves] * 2)  # type: ignore[no-untyped-call]
        own_sin, own_cos, shared_sin, shared_cos = by_wave
        each_sin, each_cos = (part.repeat(sizes.query, 1) / sizes.query for part in (shared_sin, shared_cos))
        self._pair_in_HF = torch.cat(
            [network.static_in[rows.pair], own_sin, each_sin, own_cos, each_cos]
        ).T.contiguous()
        self._angles = sizes.waves + sizes.query * sizes.shared_waves
        self._softness = torch.tensor(SOFTNESS)[:, None, None, None]
        self._mean_1Q = torch.full((1, sizes.query), 1 / sizes.query)
        self._middle_HH, self._out_PH = _transposed(network.middle), _transposed(network.out)

    @torch.no_grad()
    def prepare(self, place_NV: Float[Tensor, "N V"]) -> FrozenPlaces:
        """All that depends on places alone, for many queries of the same ones."""
        waves = self.sizes.waves
        place_VN = place_NV.T.contiguous()
        learned = torch.addmm(self._embed_bias_F1, self._embed_FV, place_VN).tanh_()
        parts = torch.addmm(self._code_bias_M1, self._code_in_MV, torch.cat([place_VN, learned]))
        bend, turn, gain, shift, middle_shift, out, of_place, line = parts[:, None].split(self._parts)  # type: ignore[no-untyped-call]
        stretch, rates = bend.exp_().split([waves, self.sizes.shared_waves])
        return FrozenPlaces(
            answer_X1N=place_VN[: self.sizes.answer, None],
            stretch_W1N=stretch,
            turn_W1N=turn.addcmul_(line, stretch),
            rates_S1N=rates,
            gain_H1N=gain,
            shift_H1N=shift.addcmul_(of_place, gain),
            middle_shift_H1N=middle_shift,
            out_P1N=out,
        )

    def known(self, context_BC: Float[Tensor, "B C"]) -> Float[Tensor, "B M 1"]:
        """What the first layer makes of contexts; the same for an episode whatever else is in the batch."""
        features_BK = self._network.known_features(context_BC)
        total = torch.zeros(len(context_BC), self._query_in_MQ.shape[0])
        for column, weight in zip(features_BK.unbind(dim=1), self._known_in_KM, strict=True):
            total.addcmul_(column[:, None], weight)
        return total[..., None]

    @torch.no_grad()
    def __call__(
        self, query_TQ: Float[Tensor, "T Q"], places: FrozenPlaces, known_M1: Float[Tensor, "M 1"]
    ) -> Float[Tensor, "T N P"]:
        """Head parameters; query and place are in unit coordinates.

        Args:
            query_TQ: The queries.
            places: N of them, as ``prepare`` makes them.
            known_M1: Of one episode, as ``known`` makes it.

        Returns:
            The parameters of every pair.
        """
        size = max(1, PAIRS // places.answer_X1N.shape[-1])
        of_query_MT1 = torch.addmm(known_M1, self._query_in_MQ, query_TQ.T)[:, :, None]
        if len(query_TQ) <= size:
            return self._at(query_TQ, of_query_MT1, places).movedim(0, -1)
        pieces = zip(query_TQ.split(size), of_query_MT1.split(size, dim=1), strict=True)  # type: ignore[no-untyped-call]
        return torch.cat([self._at(query, alone, places) for query, alone in pieces], dim=1).movedim(0, -1)

    def _at(self, query_TQ: Tensor, of_query_MT1: Tensor, places: FrozenPlaces) -> Float[Tensor, "P T N"]:
        shape = len(query_TQ), places.answer_X1N.shape[-1]
        alone_HT1, line_WT1 = of_query_MT1.split([self.sizes.hidden, self.sizes.waves])  # type: ignore[no-untyped-call]
        pairs_FL = self._compare(query_TQ, line_WT1, places, *shape)
        hidden_HL = torch.mm(self._pair_in_HF, pairs_FL)
        hidden = hidden_HL.view(-1, *shape).add_(alone_HT1)
        nn.functional.silu(torch.addcmul(places.shift_H1N, hidden, places.gain_H1N, out=hidden), inplace=True)
        middle = torch.mm(self._middle_HH, hidden_HL).view(-1, *shape).add_(places.middle_shift_H1N)
        hidden.add_(nn.functional.silu(middle, inplace=True))
        return torch.mm(self._out_PH, hidden_HL).view(-1, *shape).add_(places.out_P1N)

    def _compare(
        self, query_TQ: Tensor, line_WT1: Tensor, places: FrozenPlaces, t: int, n: int
    ) -> Float[Tensor, "F L"]:
        """What depends on a query and a place together, for L = T x N pairs."""
        sizes, q, angles = self.sizes, self.sizes.query, self._angles
        pairs_FTN, angle = torch.empty(self._pair_in_HF.shape[1], t, n), torch.empty(angles, t, n)
        features, sine, cosine = pairs_FTN.split([len(pairs_FTN) - 2 * angles, angles, angles])  # type: ignore[no-untyped-call]
        own, shared = angle.split([sizes.waves, angles - sizes.waves])  # type: ignore[no-untyped-call]
        torch.addcmul(places.turn_W1N, line_WT1, places.stretch_W1N, out=own)
        if sizes.comparable:
            apart_QTN = query_TQ.T.contiguous()[:, :, None] - places.answer_X1N
            torch.mul(apart_QTN[:, None], places.rates_S1N, out=shared.view(q, -1, t, n))
            size, soft, squared, norm, log_norm, product = features.split([q, len(SOFTNESS) * q, 1, 1, 1, 1])
            torch.abs(apart_QTN, out=size)
            soft = torch.add(size, self._softness, out=soft.view(-1, q, t, n))
            torch.div(apart_QTN, soft, out=soft)
            torch.mm(self._mean_1Q, apart_QTN.square_().view(q, -1), out=squared.view(1, -1))
            torch.add(squared, 1e-12, out=norm).sqrt_()
            torch.add(norm, 0.02, out=log_norm).log_()
            torch.mm(query_TQ, places.answer_X1N[:, 0], out=product[0])
        torch.sin(angle, out=sine)
        torch.cos(angle, out=cosine)
        return pairs_FTN.view(len(pairs_FTN), -1)


def _transposed(weight: Float[Tensor, "F H"]) -> Float[Tensor, "H F"]:
    """A copy, also where the transposed weight would lie in memory as the weight does."""
    return weight.T.clone(memory_format=torch.contiguous_format)
