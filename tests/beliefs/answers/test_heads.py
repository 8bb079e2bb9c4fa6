"""Observation heads: probabilities that add up, draws that follow them, and the head that a pilot asks for."""

import math

import pytest
import torch
from pydantic import TypeAdapter
from torch import Tensor

from cicpe.beliefs.answers.head_choice import choose_heads, find_lattice
from cicpe.beliefs.answers.heads import (
    LEAST_DENSITY,
    BinaryHead,
    CategoricalHead,
    Head,
    LogisticMixtureHead,
    NormalHead,
)
from cicpe.beliefs.answers.joint_heads import AnyHead, Heads
from cicpe.beliefs.answers.point_masses import PointMassHead, find_point_masses
from cicpe.problems.observations import Number

HEADS: list[Head] = [
    BinaryHead(low=-1.0, high=3.0),
    CategoricalHead(values=(0.0, 2.0, 5.0)),
    NormalHead(centre=10.0, spread=4.0),
    LogisticMixtureHead(centre=1.0, spread=0.5),
    LogisticMixtureHead(whole=True, transform="root", centre=3.0, spread=1.5),
    NormalHead(transform="log", middle=2.0, centre=0.3, spread=1.2),
    LogisticMixtureHead(whole=True, signed=True, step=0.25, origin=0.1, centre=2.0, spread=8.0),
]
SATURATED = [
    PointMassHead(values=(-2.0, 5.0), rest=NormalHead(centre=1.0, spread=2.0)),
    PointMassHead(values=(0.0,), rest=LogisticMixtureHead(centre=1.0, spread=2.0)),
]


def parameters_of(head: Head, seed: int = 0) -> Tensor:
    return 0.7 * torch.randn(head.parameters, generator=torch.Generator().manual_seed(seed))


def outcomes_of(head: Head) -> tuple[Tensor, float]:
    """Encoded outcomes that cover the head's distribution, and the width of the cell about each."""
    if head.outcomes is not None:
        return torch.arange(float(head.outcomes)), 1.0
    if isinstance(head, LogisticMixtureHead) and head.whole:
        return torch.arange(-4000.0 * head.signed, 4000.0), 1.0
    return torch.linspace(-60, 60, 240_001), 120 / 240_000


@pytest.mark.parametrize("head", HEADS, ids=lambda head: f"{head.kind}-{getattr(head, 'whole', '')}")
def test_probabilities_add_up_to_one(head: Head) -> None:
    outcomes, width = outcomes_of(head)
    log_p = head.log_probability(parameters_of(head).expand(len(outcomes), -1), outcomes)
    assert float(log_p.exp().sum()) * width == pytest.approx(1.0, abs=2e-3)


@pytest.mark.parametrize("head", HEADS, ids=lambda head: f"{head.kind}-{getattr(head, 'whole', '')}")
def test_draws_follow_the_probabilities(head: Head) -> None:
    n = 40_000
    uniform = torch.rand((n, 2), generator=torch.Generator().manual_seed(1))
    drawn = head.draw(head.settled(parameters_of(head)).expand(n, -1).T, uniform)
    outcomes, width = outcomes_of(head)
    p = head.log_probability(parameters_of(head).expand(len(outcomes), -1), outcomes).exp() * width
    mean = float((p * outcomes).sum())
    spread = math.sqrt(float((p * (outcomes - mean).square()).sum()))
    assert float(drawn.mean()) == pytest.approx(mean, abs=4 * spread / math.sqrt(n) + 1e-3)
    assert float(drawn.std()) == pytest.approx(spread, rel=0.06)


@pytest.mark.parametrize("head", HEADS, ids=lambda head: f"{head.kind}-{getattr(head, 'whole', '')}")
def test_decoding_undoes_encoding(head: Head) -> None:
    values = {"binary": [-1.0, 3.0], "categorical": [0.0, 2.0, 5.0]}.get(head.kind, [1e-3, 3.0, 12.0])
    if isinstance(head, LogisticMixtureHead) and head.whole:
        values = [head.origin + head.step * steps for steps in (0, 3, 12)]
    seen = torch.tensor(values)
    assert torch.allclose(head.decode(head.encode(seen)), seen, atol=1e-4)


@pytest.mark.parametrize("head", SATURATED, ids=["normal", "mixture"])
def test_a_number_that_comes_again_and_again_has_a_probability(head: PointMassHead) -> None:
    n = 40_000
    parameters = parameters_of(head)
    points, lattice = head.encode(torch.tensor(head.values)), torch.linspace(-60, 60, 240_000)
    masses = head.log_probability(parameters.expand(len(points), -1), points).exp()
    density = head.log_probability(parameters.expand(len(lattice), -1), lattice).exp()
    assert float(masses.sum() + density.sum() * 120 / 239_999) == pytest.approx(1.0, abs=2e-3)

    uniform = torch.rand((n, 2), generator=torch.Generator().manual_seed(1))
    drawn = head.decode(head.draw(head.settled(parameters).expand(n, -1).T, uniform))
    for value, mass in zip(head.values, masses.tolist(), strict=True):
        assert float((drawn == value).double().mean()) == pytest.approx(mass, abs=4 * math.sqrt(mass / n))
    others = drawn[~torch.isin(drawn, torch.tensor(head.values))]
    alone = head.rest.draw(head.rest.settled(parameters[len(points) + 1 :]).expand(n, -1).T, uniform)
    assert float(others.mean()) == pytest.approx(float(head.rest.decode(alone).mean()), abs=0.1)
    assert float(others.std()) == pytest.approx(float(head.rest.decode(alone).std()), rel=0.05)


@pytest.mark.parametrize("head", SATURATED, ids=["normal", "mixture"])
@pytest.mark.parametrize("plain", [False, True])
def test_the_quick_head_has_the_same_numbers_again_and_again(head: PointMassHead, plain: bool) -> None:
    settled = head.settled(parameters_of(head))[:, None]
    quick, its = head.quick(settled, plain)
    points = head.encode(torch.tensor(head.values))
    exact = head.settled_log_probability(settled, points)
    torch.testing.assert_close(quick.settled_log_probability(its, points), exact)
    assert float(quick.settled_log_probability(its, points + 0.1)[0]) != pytest.approx(float(exact[0]))


@pytest.mark.parametrize("head", [*HEADS, *SATURATED], ids=lambda head: head.kind)
def test_a_saved_head_is_read_as_it_was(head: Head) -> None:
    adapter: TypeAdapter[Head] = TypeAdapter(AnyHead)
    assert adapter.validate_json(head.model_dump_json()) == head


def test_readings_that_come_again_and_again_are_found() -> None:
    rng = torch.Generator().manual_seed(0)
    real = torch.randn(4000, generator=rng)
    clipped = real.clamp(-1.0, 1.5)
    assert find_point_masses(real) == ()
    assert find_point_masses(clipped) == (-1.0, 1.5)
    assert find_point_masses(clipped.mul(4).round()) == ()  # steps, each of which comes often
    head, *_ = choose_heads(clipped[:, None])
    assert head.kind == "point-masses"
    assert (head.rest.centre, head.rest.spread) == pytest.approx((0.145, 0.645), abs=0.04)  # a truncated normal
    assert choose_heads(clipped[:, None], heavy_tails=True)[0].rest.kind == "mixture"


def test_a_declared_number_that_a_pilot_saw_saturated_alone_still_has_a_density() -> None:
    stuck = torch.tensor([0.0, 14.0]).repeat(100)[:, None]
    head, *_ = choose_heads(stuck, declared=(Number(0, 14),))
    assert head.values == (0.0, 14.0)
    log_p = head.log_probability(torch.zeros(4, head.parameters), head.encode(torch.tensor([0.0, 7.0, 14.0, -3.0])))
    assert bool(torch.isfinite(log_p).all())


@pytest.mark.parametrize(("step", "origin"), [(0.5, 0.0), (0.02, 0.011), (3.0, 1.0)])
def test_the_steps_of_an_instrument_are_found(step: float, origin: float) -> None:
    steps = torch.randn(8000, generator=torch.Generator().manual_seed(0)).mul(30).round()
    reading = origin + step * steps
    lattice = find_lattice(reading)
    assert lattice is not None
    assert lattice.step == pytest.approx(step, rel=1e-4)
    head, *_ = choose_heads(reading[:, None])
    assert (head.whole, head.signed) == (True, True)
    # Counted from the reading that is nearest to zero.
    assert torch.allclose(head.decode(head.encode(reading)), reading, atol=1e-3 * step)
    assert abs(lattice.origin) <= 0.5 * step


def test_readings_without_steps_have_none() -> None:
    rng = torch.Generator().manual_seed(0)
    real = torch.randn(8000, generator=rng)
    assert find_lattice(real) is None
    assert find_lattice(real.clamp(-0.2, 0.2)) is None  # most are one of two numbers, and the others differ


def test_a_pilot_chooses_the_head() -> None:
    rng = torch.Generator().manual_seed(0)
    n = 4000
    yes = torch.randint(2, (n,), generator=rng).float()
    grade = torch.randint(5, (n,), generator=rng).float()
    count = torch.poisson(torch.full((n,), 20.0), generator=rng)
    real = torch.randn(n, generator=rng)
    cauchy = real / torch.randn(n, generator=rng)
    waiting = torch.exp(3 * torch.rand(n, generator=rng)).log1p().exp() ** 3
    heads = choose_heads(torch.stack([yes, grade, count, real, cauchy, waiting, -waiting], dim=1))
    assert [head.kind for head in heads] == ["binary", "categorical", "mixture", *["normal"] * 4]
    assert heads[2].whole
    assert [head.transform for head in heads[2:]] == ["root", "none", "asinh", "log", "none"]
    assert choose_heads(real[:, None], heavy_tails=True)[0].kind == "mixture"


def test_entries_of_a_vector_are_independent_given_the_parameters() -> None:
    heads = Heads((BinaryHead(low=0.0, high=1.0), NormalHead()))
    parameters = torch.tensor([0.3, 0.1, -0.2])
    both = heads.log_probability(parameters, torch.tensor([1.0, 0.4]))
    alone = heads.heads[0].log_probability(parameters[:1], torch.tensor(1.0))
    assert float(both) == pytest.approx(
        float(alone + heads.heads[1].log_probability(parameters[1:], torch.tensor(0.4)))
    )


@pytest.mark.parametrize(
    ("head", "observations"),
    [
        (LogisticMixtureHead(whole=True, transform="root", centre=2.0, spread=1.5), (0.0, 1.0, 7.0, 60.0)),
        (LogisticMixtureHead(centre=1.0, spread=2.0), (-3.0, 0.4, 5.0)),
        (NormalHead(centre=1.0, spread=2.0), (-3.0, 0.4, 5.0)),
        (BinaryHead(low=0.0, high=1.0), (0.0, 1.0)),
        (CategoricalHead(values=(1.0, 2.0, 5.0)), (1.0, 5.0)),
    ],
    ids=["count", "mixture", "normal", "binary", "categorical"],
)
def test_settled_parameters_give_the_same_probabilities(head: Head, observations: tuple[float, ...]) -> None:
    heads = Heads((head,))
    parameters = torch.randn((len(observations), 50, heads.parameters), generator=torch.Generator().manual_seed(0))
    encoded = heads.encode(torch.tensor(observations)[:, None])[:, None]
    settled = heads.settled(parameters).movedim(-1, 0)
    both = heads.settled_log_probability(settled, encoded), heads.log_probability(parameters, encoded)
    least = math.log(LEAST_DENSITY)  # below it, a mixture is not told apart
    torch.testing.assert_close(*(log_p.clamp_min(least) for log_p in both), rtol=1e-4, atol=1e-3)


def test_one_gaussian_stands_for_a_mixture_with_its_middle_and_spread() -> None:
    head = LogisticMixtureHead()
    settled = head.settled(torch.tensor([5.0, 0.0, 0.0, 1.0, 0.0, 0.0, -1.0, -1.0, -1.0]))  # nearly one component
    plain, its = head.quick(settled[:, None], plain=True)
    uniform = torch.rand((40_000, 2), generator=torch.Generator().manual_seed(0))
    drawn = head.draw(settled[:, None].expand(-1, 40_000), uniform)
    assert plain.kind == "normal"
    assert float(its[0]) == pytest.approx(float(drawn.mean()), abs=0.03)
    assert math.exp(float(its[1])) == pytest.approx(float(drawn.std()), rel=0.15)


@pytest.mark.parametrize("mean", [0.5, 4.0, 60.0])
def test_whole_numbers_are_nearly_real_ones_where_queries_are_compared(mean: float) -> None:
    """A Poisson's log-likelihood ratios between two means, by the discretised mixture and by the quick one."""
    head = LogisticMixtureHead(whole=True, transform="root", centre=2.0, spread=1.5)
    root = torch.tensor([mean, 1.5 * mean + 1]).add(0.375).sqrt().sub(2.0).div(1.5)
    scale = math.log(0.5 / 1.8 / 1.5)  # the root of a Poisson count varies by one half
    parameters = torch.stack([torch.tensor([9.0, 0, 0, m + 1, 0, 0, scale, 0, 0]) for m in root.tolist()])
    settled = head.settled(parameters).T[:, :, None]
    counts = torch.poisson(torch.full((4000,), mean), generator=torch.Generator().manual_seed(0))
    exact = head.settled_log_probability(settled, counts[None])
    real, its = head.quick(settled, plain=False)
    encoded = real.encode((counts + 0.375).sqrt().sub(2.0).div(1.5))
    quick = real.settled_log_probability(its, encoded[None])
    told = [float((log_p[0] - log_p[1]).mean()) for log_p in (exact, quick)]
    assert told[1] == pytest.approx(told[0], rel=0.35)
