"""Checks heads against closed forms: linear effects against a dense Gaussian, and densities that add up to one."""

import torch
from heads import CategoricalHead, GaussianHead, MixtureHead


def main() -> None:
    rng = torch.Generator().manual_seed(0)
    pilot = torch.randn(1000, generator=rng)
    head = GaussianHead(pilot, effects=3)
    steps = 7
    parameters = torch.randn((steps, head.parameters), generator=rng).double() * 0.7
    y = torch.randn(steps, generator=rng).double()
    sums = head.evidence(parameters, y).sum(dim=0)
    effects, noise = parameters[:, 2:], parameters[:, 1].exp()
    dense = torch.distributions.MultivariateNormal(parameters[:, 0], effects @ effects.T + torch.diag(noise.square()))
    assert torch.allclose(head.log_likelihood(sums), dense.log_prob(y)), (head.log_likelihood(sums), dense.log_prob(y))
    # The predictive density is the ratio of two evidences.
    before = head.evidence(parameters[:-1], y[:-1]).sum(dim=0)
    predicted = head.log_density(head.predictive(parameters[-1], before), y[-1])
    assert torch.allclose(predicted, head.log_likelihood(sums) - head.log_likelihood(before))

    counts = torch.poisson(5 * torch.rand(2000, generator=rng), generator=rng)
    whole = MixtureHead(counts, "root", whole=True)
    given = torch.randn((4, whole.parameters), generator=rng)
    total = whole.log_density(given[:, None], torch.arange(2000.0)).exp().sum(dim=1)
    assert torch.allclose(total, torch.ones(4), atol=1e-3), total
    real = MixtureHead(pilot)
    line = torch.linspace(-60, 60, 200_001)
    total = torch.trapezoid(real.log_density(given[:, None], line).exp(), line, dim=1)
    assert torch.allclose(total, torch.ones(4), atol=1e-3), total
    few = CategoricalHead([0.0, 1.0, 3.0])
    assert few.encode(torch.tensor([3.0, 0.2, 0.9])).tolist() == [2.0, 0.0, 1.0]
    print("heads: all checks passed")


if __name__ == "__main__":
    main()
