"""What a query would tell: the lookahead beside sums over all that could be seen."""

import pytest
import torch
from torch import Tensor

from cicpe.beliefs.answers.heads import LogisticMixtureHead, NormalHead
from cicpe.beliefs.answers.joint_heads import Heads
from cicpe.beliefs.answers.queries import remaining_uncertainty

DRAWS, OUTCOMES = 24, 4096
STRAYS = (5.0, 2.4, -20.0)
"""Logits of the shares of a mixture's components: the second, of strays, has a share of 7 %."""


def kernel(answer_M: Tensor) -> Tensor:
    return 1 / (1 + ((answer_M[:, None] - answer_M) / 0.3).square())


def exactly(heads: Heads, parameters_MP: Tensor, kernel_MM: Tensor) -> float:
    """The expected smoothed entropy of the answer, by a fine sum over observations."""
    value = torch.linspace(-40, 40, 20_001)
    density_VM = heads.log_probability(parameters_MP, value[:, None, None]).double().exp()
    weight_VM = density_VM / density_VM.sum(dim=1, keepdim=True).clamp_min(1e-300)
    smooth_VM = (weight_VM @ kernel_MM.double()).clamp_min(1e-300)
    left_V = -(weight_VM * smooth_VM.log()).sum(dim=1)
    return float((density_VM.mean(dim=1) * left_V).sum() * (value[1] - value[0]))


def parameters(mean_M: Tensor, sharp: float, strays: bool) -> Tensor:
    """Of a sharp reading about a mean that depends on the answer; a part of the readings may lie anywhere."""
    if not strays:
        return torch.stack([mean_M, torch.full_like(mean_M, sharp)], dim=-1)
    share = torch.tensor(STRAYS).expand(len(mean_M), -1)
    middle = torch.stack([mean_M + 1, torch.zeros_like(mean_M), mean_M - 1], dim=-1)  # components begin at -1, 0 and 1
    scale = torch.tensor([sharp, 1.0, sharp]).expand(len(mean_M), -1)
    return torch.cat([share, middle, scale], dim=-1)


@pytest.mark.parametrize("strays", [False, True], ids=["normal", "strays"])
@pytest.mark.parametrize("sharp", [-3.0, -1.0])
def test_what_is_left_after_a_query_is_the_sum_over_all_that_could_be_seen(strays: bool, sharp: float) -> None:
    heads = Heads((LogisticMixtureHead() if strays else NormalHead(),))
    answer = torch.linspace(-1, 1, DRAWS)
    both = [parameters(slope * answer, sharp, strays) for slope in (0.2, 1.0)]
    rng = torch.Generator().manual_seed(0)
    strata = (torch.arange(OUTCOMES)[:, None, None] + torch.rand((OUTCOMES, 1, 2), generator=rng)) / OUTCOMES
    uniform = strata.gather(0, torch.rand((OUTCOMES, 1, 2), generator=rng).argsort(dim=0))
    settled = heads.settled(torch.stack(both)[None]).movedim(-1, 0)
    left = remaining_uncertainty(heads, settled, kernel(answer)[None], uniform)[0]
    wanted = [exactly(heads, each, kernel(answer)) for each in both]
    assert left.tolist() == pytest.approx(wanted, abs=0.03)
    assert left[1] < left[0] - 0.05  # the steeper one tells more
