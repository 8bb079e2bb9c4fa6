"""The regression memory: a closed-form Bayesian linear regression of the observations on features.

For y = f(a) + noise. Each of J heads has its own features (linear in the query, or a Fourier basis
with its own length scale) with a standard normal prior on their weights, and its own noise level. The
posterior at *every* prefix comes from one Cholesky factorisation: with G = Phi Phi' + noise I = L L',
the rows of U = L^-1 Phi and z = L^-1 y give

    w_t = sum_{s<=t} u_s z_s          (posterior mean of the weights),
    P_t = I - sum_{s<=t} u_s u_s'     (posterior covariance),
    log evidence_t = sum_{s<=t} -(z_s^2 + log 2 pi)/2 - log L_ss,

because the factorisation of a prefix is the corner of the whole. Stepping appends one row, which is
the Sherman-Morrison update in the same coordinates. Arithmetic is float64: noise of 1e-3 beside unit
signals leaves single precision no digits.
"""

import math
from typing import ClassVar, Literal, NamedTuple, final

import torch
from jaxtyping import Int
from pydantic import Field
from torch import Generator, Tensor, nn

from cicpe import trees
from cicpe.beliefs.network.memories.base import Dims, FunctionMemory, MemoryConfig, MemoryFeatures, gather_prefixes
from cicpe.errors import InvalidInput
from cicpe.gp.exact import log_density
from cicpe.statistics import sobol_points

SMALLEST_NOISE = 1e-4
FINE_PROBES = 161
"""Places at which drawn functions are searched for their largest value: finer than what the network reads."""


@final
class RegressionConfig(MemoryConfig):
    """Bayesian regression heads, read at probe points."""

    holds_function: ClassVar[bool] = True

    kind: Literal["regression"] = "regression"
    features: Literal["linear", "fourier"] = "fourier"
    """Linear in the query, or a Fourier basis (RBF-like functions)."""
    estimate: Literal["weights", "maximum", "argmax", "none"] = "none"
    """What the natural estimate of the target is: the weights, the largest mean, or its place."""
    length_scales: tuple[float, ...] = (0.1, 0.2, 0.35, 0.6)
    """Initial length scale of each Fourier head, in unit coordinates (the query space is 2 wide)."""
    basis: int = Field(default=40, ge=1, le=10_000)
    """Fourier basis functions: per axis for one query dimension, in all for more."""
    probes: int = Field(default=41, ge=1, le=10_000)
    """Points at which the posterior is read, per head."""

    def build(self, dims: Dims) -> "RegressionMemory":
        """The memory that this describes."""
        return RegressionMemory(self, dims)


class RegressionState(NamedTuple):
    """The whitened rows so far, and weights and evidence at every prefix. Float64."""

    rows_BTJF: Tensor
    weights_BPJF: Tensor
    evidence_BPJ: Tensor
    noise_BJ: Tensor
    context_BC: Tensor
    prefix_BP: Tensor
    explained_BPJK: Tensor | None
    """Variance at the probes that the rows explain, where an episode is played step by step: to find it from all rows
    again at every step would move most of the memory."""

    def at_prefixes(self, index_BK: Int[Tensor, "batch chosen"]) -> "RegressionState":
        """The state at K prefixes per episode, for reading."""
        return self._replace(
            weights_BPJF=gather_prefixes(self.weights_BPJF, index_BK),
            evidence_BPJ=gather_prefixes(self.evidence_BPJ, index_BK),
            prefix_BP=gather_prefixes(self.prefix_BP, index_BK),
        )


@final
class RegressionMemory(FunctionMemory):
    """J Bayesian linear regressions side by side, weighted by their evidence."""

    def __init__(self, config: RegressionConfig, dims: Dims) -> None:
        super().__init__()
        _check_sizes(config, dims)
        self.linear = config.features == "linear"
        self.estimate = config.estimate
        scales = (1.0,) if self.linear else config.length_scales
        heads = len(scales)
        self.log_scale = nn.Parameter(torch.tensor(scales, dtype=torch.float64).log())
        self.log_amplitude = nn.Parameter(torch.zeros(heads, dtype=torch.float64))
        self.noise_by_context = nn.Parameter(torch.full((dims.context, heads), 0.3, dtype=torch.float64))
        self.log_noise = nn.Parameter(torch.full((heads,), -4.0 if self.linear else -2.5, dtype=torch.float64))
        probes = torch.eye(dims.query) if self.linear else _grid(config.probes, dims.query)
        self.register_buffer("probes_KQ", probes.double())
        self.probes_KQ: Tensor
        if not self.linear:
            self.register_buffer("frequencies_MQ", _frequencies(config.basis, dims.query))
            self.frequencies_MQ: Tensor
        self.value_scale = nn.Parameter(torch.tensor([0.2, 0.0]))
        self.width = 2 * len(probes) + heads + 3
        self.width_at = self.width + dims.query + 2
        self._width_near = 6 + dims.context

    def _features(self, query_NQ: Tensor, trained: bool = True) -> Tensor:
        """Features of each head: N x J x F, with a standard normal prior on their weights.

        Where they are not to be ``trained``, the gradient goes to the query alone, not to kernel parameters.
        """
        log_amplitude_J, log_scale_J = (p if trained else p.detach() for p in (self.log_amplitude, self.log_scale))
        amplitude_J1 = log_amplitude_J.exp()[:, None]
        if self.linear:
            return query_NQ.double()[..., None, :] * amplitude_J1
        scale_J1 = log_scale_J.exp()[:, None]
        if query_NQ.shape[-1] == 1:
            # Sines on [-L, L]: the Hilbert-space approximation of an RBF kernel; exact as the basis grows.
            half = 1.5
            omega_M = self.frequencies_MQ[:, 0] / half
            waves_NM = torch.sin(omega_M * (query_NQ.double() + half)) / math.sqrt(half)
            density_JM = math.sqrt(2 * math.pi) * scale_J1 * torch.exp(-((omega_M * scale_J1) ** 2) / 2)
            return waves_NM[..., None, :] * density_JM.sqrt() * amplitude_J1
        phase_NJM = (query_NQ.double() @ self.frequencies_MQ.T)[..., None, :] / scale_J1
        waves = torch.cat([phase_NJM.cos(), phase_NJM.sin()], dim=-1)
        return waves * amplitude_J1 / math.sqrt(len(self.frequencies_MQ))

    def begin(self, context_BC: Tensor) -> RegressionState:
        noise_BJ = (context_BC.double() @ self.noise_by_context + self.log_noise).exp().clamp_min(SMALLEST_NOISE)
        batch, heads = noise_BJ.shape
        size = self._features(self.probes_KQ[:1]).shape[-1]
        zeros = torch.zeros(batch, 1, heads, size, dtype=torch.float64)
        evidence = torch.zeros(batch, 1, heads, dtype=torch.float64)
        prefix = torch.zeros(batch, 1, dtype=torch.long)
        explained = torch.zeros(batch, 1, heads, len(self.probes_KQ), dtype=torch.float64)
        return RegressionState(zeros[:, :0], zeros, evidence, noise_BJ, context_BC, prefix, explained)

    def step(self, state: RegressionState, query_BQ: Tensor, observation_BY: Tensor) -> RegressionState:
        phi_BJF = self._features(query_BQ)
        along_BTJ = torch.einsum("btjf,bjf->btj", state.rows_BTJF, phi_BJF)
        left_BJF = phi_BJF - torch.einsum("btjf,btj->bjf", state.rows_BTJF, along_BTJ)
        weights_BJF = state.weights_BPJF[:, 0]
        variance_BJ = phi_BJF.square().sum(-1) - along_BTJ.square().sum(1) + state.noise_BJ.square()
        std_BJ = variance_BJ.clamp_min(SMALLEST_NOISE**2).sqrt()
        z_BJ = (observation_BY.double() - (phi_BJF * weights_BJF).sum(-1)) / std_BJ
        row_BJF = left_BJF / std_BJ[..., None]
        assert state.explained_BPJK is not None, "a state that was unrolled is read, not stepped"
        along_BJK = torch.einsum("bjf,kjf->bjk", row_BJF, self._features(self.probes_KQ))
        return RegressionState(
            torch.cat([state.rows_BTJF, row_BJF[:, None]], dim=1),
            (weights_BJF + row_BJF * z_BJ[..., None])[:, None],
            state.evidence_BPJ + log_density(z_BJ, std_BJ)[:, None],
            state.noise_BJ,
            state.context_BC,
            state.prefix_BP + 1,
            state.explained_BPJK + along_BJK.square()[:, None],
        )

    def unroll(self, context_BC: Tensor, query_BTQ: Tensor, observation_BTY: Tensor) -> RegressionState:
        first = self.begin(context_BC)
        phi_BJTF = self._features(query_BTQ).transpose(1, 2)
        noise_BJTT = torch.diag_embed(first.noise_BJ.square()[..., None].expand(-1, -1, query_BTQ.shape[1]))
        lower_BJTT = torch.linalg.cholesky(phi_BJTF @ phi_BJTF.mT + noise_BJTT)
        y_BJT1 = observation_BTY.double()[:, None].expand(-1, phi_BJTF.shape[1], -1, -1)
        solved = torch.linalg.solve_triangular(lower_BJTT, torch.cat([phi_BJTF, y_BJT1], dim=-1), upper=False)
        rows_BTJF, z_BTJ = solved[..., :-1].transpose(1, 2), solved[..., -1].transpose(1, 2)
        diagonal_BTJ = lower_BJTT.diagonal(dim1=-2, dim2=-1).transpose(1, 2)
        return RegressionState(
            rows_BTJF,
            torch.cat([first.weights_BPJF, (rows_BTJF * z_BTJ[..., None]).cumsum(dim=1)], dim=1),
            torch.cat([first.evidence_BPJ, log_density(z_BTJ, diagonal_BTJ).cumsum(dim=1)], dim=1),
            first.noise_BJ,
            context_BC,
            torch.arange(query_BTQ.shape[1] + 1).expand(len(query_BTQ), -1),
            None,
        )

    def _explained(self, state: RegressionState, phi_KJF: Tensor) -> Tensor:
        """Variance that the rows up to each prefix explain: sums of squares, B x P x J x K."""
        if state.explained_BPJK is not None:
            return state.explained_BPJK
        squares = torch.einsum("btjf,kjf->btjk", state.rows_BTJF, phi_KJF).square()
        steps, prefixes = squares.shape[1], state.prefix_BP.shape[1]
        if prefixes <= 2:  # the one of a step, or two that were chosen
            seen_BPT = (torch.arange(steps) < state.prefix_BP[..., None]).double()
            return torch.einsum("bpt,btjk->bpjk", seen_BPT, squares)
        assert prefixes == steps + 1, "every prefix, or two of them at most"
        return torch.cat([torch.zeros_like(squares[:, :1]), squares.cumsum(dim=1)], dim=1)

    def _mixed(self, state: RegressionState, mean_BPJK: Tensor, variance_BPJK: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of the evidence-weighted mixture of heads."""
        share_BPJ1 = state.evidence_BPJ.softmax(dim=-1)[..., None]
        mean_BPK = (share_BPJ1 * mean_BPJK).sum(dim=2)
        second_BPK = (share_BPJ1 * (variance_BPJK.clamp_min(1e-12) + mean_BPJK.square())).sum(dim=2)
        return mean_BPK, (second_BPK - mean_BPK.square()).clamp_min(1e-12).sqrt()

    def features(self, state: RegressionState) -> MemoryFeatures:
        phi_KJF = self._features(self.probes_KQ)
        read: MemoryFeatures = trees.by_pieces(
            lambda part: self._read(part, phi_KJF), state, _row_bytes(state, len(phi_KJF))
        )
        return read

    def _read(self, state: RegressionState, phi_KJF: Tensor) -> MemoryFeatures:
        mean_BPJK = torch.einsum("bpjf,kjf->bpjk", state.weights_BPJF, phi_KJF)
        prior_JK = phi_KJF.square().sum(-1).T
        mean, std = self._mixed(state, mean_BPJK, prior_JK - self._explained(state, phi_KJF))
        best, place = mean.max(dim=-1, keepdim=True)
        best_std = std.gather(-1, place)
        highest = (mean + std).amax(dim=-1, keepdim=True)
        parts = [mean, std.log() / 4, state.evidence_BPJ.softmax(dim=-1), best, best_std.log() / 4, highest]
        point_estimate, log_spread = self._estimate(mean, std, best, best_std)
        summary = torch.cat(parts, dim=-1).float()
        return MemoryFeatures(summary, None, point_estimate, log_spread, mean.float(), std.float())

    def _estimate(
        self, mean: Tensor, std: Tensor, best: Tensor, best_std: Tensor
    ) -> tuple[Tensor | None, Tensor | None]:
        match self.estimate:
            case "weights":
                return mean.float(), std.log().float()
            case "maximum":
                scale, shift = self.value_scale
                return best.float() * scale + shift, best_std.log().float() + scale.abs().log()
            case "argmax":
                sharp = (4 * mean).softmax(dim=-1)
                place = sharp @ self.probes_KQ
                spread = (sharp @ self.probes_KQ.square() - place.square()).clamp_min(1e-6).log() / 2
                return place.float(), spread.float()
        return None, None

    def predict(self, state: RegressionState, query_BKQ: Tensor) -> tuple[Tensor, Tensor]:
        row_bytes = _row_bytes(state, 0) + query_BKQ.shape[1] * state.weights_BPJF[0, 0].nbytes
        mean_std: tuple[Tensor, Tensor] = trees.by_pieces(
            lambda part: self._predict(*part), (state, query_BKQ), row_bytes
        )
        return mean_std

    def _predict(self, state: RegressionState, query_BKQ: Tensor) -> tuple[Tensor, Tensor]:
        phi_BKJF = self._features(query_BKQ)
        mean_BJK = torch.einsum("bjf,bkjf->bjk", state.weights_BPJF[:, 0], phi_BKJF)
        along_BTJK = torch.einsum("btjf,bkjf->btjk", state.rows_BTJF, phi_BKJF)
        variance_BJK = phi_BKJF.square().sum(-1).transpose(1, 2) - along_BTJK.square().sum(dim=1)
        mean, std = self._mixed(state, mean_BJK[:, None], variance_BJK[:, None])
        return mean[:, 0].float(), std[:, 0].float()

    def sample_probes(self, state: RegressionState, rng: Generator) -> Tensor:
        phi_KJF = self._features(self.probes_KQ)
        head_B = torch.multinomial(state.evidence_BPJ[:, 0].softmax(dim=-1), 1, generator=rng)[:, 0]
        episode_B = torch.arange(len(head_B))
        phi_BKF = phi_KJF.transpose(0, 1)[head_B]
        rows_BTF = state.rows_BTJF[episode_B, :, head_B]
        along_BTK = rows_BTF @ phi_BKF.mT
        covariance_BKK = phi_BKF @ phi_BKF.mT - along_BTK.mT @ along_BTK
        jitter_KK = 1e-6 * torch.eye(phi_BKF.shape[1], dtype=torch.float64)
        lower_BKK = torch.linalg.cholesky_ex(covariance_BKK + jitter_KK).L
        noise_BK1 = torch.randn((len(head_B), phi_BKF.shape[1], 1), generator=rng, dtype=torch.float64)
        mean_BK1 = phi_BKF @ state.weights_BPJF[episode_B, 0, head_B][..., None]
        drawn_BK1: Tensor = mean_BK1 + lower_BKK @ noise_BK1
        return drawn_BK1[..., 0].float()

    def sample_largest(self, state: RegressionState, n: int, rng: Generator) -> Tensor | None:
        if self.estimate != "maximum":
            return None
        phi_KJF = self._features(_grid(FINE_PROBES, self.probes_KQ.shape[1]).double())
        identity_FF = torch.eye(phi_KJF.shape[-1], dtype=torch.float64)
        covariance_BJFF = identity_FF - torch.einsum("btjf,btjg->bjfg", state.rows_BTJF, state.rows_BTJF)
        lower_BJFF = torch.linalg.cholesky_ex(covariance_BJFF + 1e-9 * identity_FF).L
        shares_BJ = state.evidence_BPJ[:, 0].softmax(dim=-1)
        head_BN = torch.multinomial(shares_BJ, n, replacement=True, generator=rng)
        white_BNF = torch.randn((*head_BN.shape, phi_KJF.shape[-1]), generator=rng, dtype=torch.float64)
        largest_BN = torch.empty(head_BN.shape, dtype=torch.float64)
        for episode, head in torch.cartesian_prod(torch.arange(len(head_BN)), torch.arange(phi_KJF.shape[1])).tolist():
            chosen_N = head_BN[episode] == head
            weights_NF = (
                state.weights_BPJF[episode, 0, head] + white_BNF[episode, chosen_N] @ lower_BJFF[episode, head].T
            )
            largest_BN[episode, chosen_N] = (weights_NF @ phi_KJF[:, head].T).amax(dim=-1)
        return largest_BN.float()

    def features_at(self, state: RegressionState, memory_features: MemoryFeatures, query_BPQ: Tensor) -> Tensor:
        # A critic with a memory of its own trains the kernel by the history, not by the place of a candidate.
        phi_BPJF = self._features(query_BPQ, trained=False)
        mean_BPJ1 = (state.weights_BPJF * phi_BPJF).sum(-1, keepdim=True)
        along_BPTJ = torch.einsum("btjf,bpjf->bptj", state.rows_BTJF, phi_BPJF)
        steps_T = torch.arange(state.rows_BTJF.shape[1])
        seen_BPT = steps_T < state.prefix_BP[..., None]
        explained_BPJ = (along_BPTJ.square() * seen_BPT[..., None]).sum(dim=2)
        variance_BPJ1 = (phi_BPJF.square().sum(-1) - explained_BPJ)[..., None]
        mean, std = self._mixed(state, mean_BPJ1, variance_BPJ1)
        return torch.cat([memory_features.summary, query_BPQ, mean.float(), std.log().float() / 4], dim=-1)

    @property
    def width_near(self) -> int:
        return self._width_near

    def features_near(self, state: RegressionState, memory_features: MemoryFeatures, query_BPQ: Tensor) -> Tensor:
        """Mean and spread at the query, how both compare with the best mean and bound so far, and the context."""
        mean, quarter_log_std = self.features_at(state, memory_features, query_BPQ)[..., -2:].unbind(dim=-1)
        return _near(state, memory_features, mean[..., None], quarter_log_std[..., None])[..., 0, :]

    def features_near_probes(self, state: RegressionState, memory_features: MemoryFeatures) -> Tensor:
        mean, std = memory_features.function_mean, memory_features.function_std
        assert mean is not None
        assert std is not None
        return _near(state, memory_features, mean, std.log() / 4)


def _near(state: RegressionState, features: MemoryFeatures, mean_BPK: Tensor, quarter_log_std_BPK: Tensor) -> Tensor:
    """What places look like, beside the best of the probes: batch x prefix x place x width_near."""
    assert features.function_mean is not None
    assert features.function_std is not None
    best_BP1 = features.function_mean.amax(dim=-1, keepdim=True)
    highest_BP1 = (features.function_mean + features.function_std).amax(dim=-1, keepdim=True)
    below_BPK = mean_BPK - best_BP1
    in_spreads_BPK = (below_BPK * (-4 * quarter_log_std_BPK).exp()).clamp(-5.0, 5.0)
    best_BPK, above_BPK = (part.expand_as(mean_BPK) for part in (best_BP1, highest_BP1 - best_BP1))
    own = torch.stack([mean_BPK, quarter_log_std_BPK, best_BPK, below_BPK, in_spreads_BPK, above_BPK], dim=-1)
    context = state.context_BC[:, None, None].expand(*mean_BPK.shape, -1)
    return torch.cat([own, context.to(own)], dim=-1)


def _row_bytes(state: RegressionState, probes: int) -> int:
    """What an episode's rows take, as features or read at so many probes."""
    _, steps, heads, size = state.rows_BTJF.shape
    return 8 * heads * (steps + state.prefix_BP.shape[1]) * max(size, probes)


def _check_sizes(config: RegressionConfig, dims: Dims) -> None:
    if dims.observation != 1:
        raise InvalidInput(
            "memory",
            "regression",
            f"another one for this problem: regression needs one number per observation; it has {dims.observation}",
        )
    gives = {"weights": dims.query, "argmax": dims.query, "maximum": 1, "none": dims.answer}[config.estimate]
    if gives != dims.answer or (config.estimate == "weights" and config.features != "linear"):
        sizes = f"query {dims.query}, answer {dims.answer}"
        raise InvalidInput(
            "estimate",
            config.estimate,
            f"weights (linear features) or argmax where query and answer are of one size, maximum for one number, "
            f"or none; this problem has {sizes}",
        )


def _grid(points: int, dim: int) -> Tensor:
    """About ``points`` points that cover [-1, 1]^dim: a lattice in one and two dimensions, Sobol above."""
    if dim == 1:
        return torch.linspace(-1, 1, points)[:, None]
    if dim == 2:
        line = torch.linspace(-1, 1, math.ceil(math.sqrt(points)))
        return torch.cartesian_prod(line, line)
    return 2 * sobol_points(points, dim, seed=0).float() - 1


def _frequencies(basis: int, dim: int) -> Tensor:
    """Frequencies of the Fourier basis: equally spaced sines in one dimension, normal quasi-random above."""
    if dim == 1:
        return (torch.arange(1, basis + 1, dtype=torch.float64) * math.pi / 2)[:, None]
    normal: Tensor = torch.special.ndtri(sobol_points(basis, dim, seed=1).clamp(1e-4, 1 - 1e-4))
    return normal
