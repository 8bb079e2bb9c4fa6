"""TD3 on a posterior that is computed: targets, what the actor starts from, and that it finds a better query."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Generator, Tensor, nn

import cicpe
from cicpe.beliefs.answers.actor import LearnedQueries, PosteriorActor
from cicpe.beliefs.base import Assessment, Belief
from cicpe.errors import InvalidInput
from cicpe.problems.binary_search import BinarySearch
from cicpe.spaces import Box, Space
from cicpe.training.posterior_actor import COST, ActorLearner, ActorLimit, Transitions, learn_actor, play_round

LINE = Box([-2.0], [2.0])
SPREAD, BEST, WIDTH = 0.4, 0.6, 0.2
"""The posterior's spread; the one query that tells something, and how near it another has to be."""


class _State(NamedTuple):
    sure_B: Tensor
    context_BC: Tensor
    time_B: Tensor


@dataclass(frozen=True)
class Elsewhere(Belief):
    """Recommends 0, and is surer after queries near ``BEST`` alone, where few posterior samples are."""

    horizon: int = 6

    @property
    def query_space(self) -> Space:
        return LINE

    @property
    def answer_space(self) -> Space:
        return LINE

    def begin(self, context: Tensor) -> _State:
        n = len(context)
        return _State(torch.full((n,), 0.1), context, torch.zeros(n, dtype=torch.long))

    def update(self, state: _State, query: Tensor, observation: Tensor) -> _State:
        told = (query[:, 0] - BEST).abs() < WIDTH
        return _State(state.sure_B + 0.3 * told, state.context_BC, state.time_B + 1)

    def assess(
        self,
        state: _State,
        epsilons: Sequence[float],
        rng: Generator,
        query_spread: float = 0.0,
        costs: Sequence[Tensor] = (),
    ) -> Assessment:
        n, e = len(state.sure_B), len(epsilons)
        sure, nothing = state.sure_B.expand(e, -1), torch.zeros(n, 1)
        std = torch.full((n, 1), SPREAD)
        return Assessment(state.time_B, nothing[:, None], nothing.expand(e, -1, -1), sure, sure, sure[:, None], std)

    def sample_answers(self, state: Any, n: int, rng: Generator) -> Tensor:
        return SPREAD * torch.randn((len(state.sure_B), n, 1), generator=rng)

    def tensors(self) -> Mapping[str, Tensor]:
        return {}


def some_features(actor: PosteriorActor, n: int = 5) -> Tensor:
    return torch.randn((n, actor.features), generator=torch.Generator().manual_seed(2)) / 3


def test_an_actor_that_has_learned_nothing_is_the_posterior() -> None:
    actor = PosteriorActor(dim=3, context=1)
    features = some_features(actor) / 10
    policy, (centre, log_std) = actor(features), actor.moments(features)
    torch.testing.assert_close(policy.mean_unit, centre, atol=0.1, rtol=0)
    torch.testing.assert_close(policy.log_std_unit, log_std, atol=0.1, rtol=0)


def test_the_actor_sees_what_the_posterior_says() -> None:
    belief, actor = Elsewhere(), PosteriorActor(dim=1, context=0)
    state = belief.begin(torch.zeros(2, 0))._replace(time_B=torch.tensor([0, 4]))
    features = actor.seen(belief.assess(state, (0.1,), torch.Generator()), state.context_BC, LINE)
    centre, log_std = actor.moments(features)
    torch.testing.assert_close(centre, torch.zeros(2, 1))
    torch.testing.assert_close(log_std.exp() * LINE.unit_scale, torch.full((2, 1), SPREAD))
    assert not torch.equal(features[0], features[1]), "it knows how many observations there are"


def test_targets_are_one_step_ahead_with_the_smaller_of_two_critics() -> None:
    """-c + max(r(h'), min_i Q_i(h', a')), by hand, with critics whose values are known."""
    actor = PosteriorActor(dim=1, context=0)
    learner = ActorLearner(actor, LINE, torch.Generator().manual_seed(0))
    for critic, value in zip(learner.slow_critics, (0.7, 0.4), strict=True):
        last = critic.layers[-1]
        assert isinstance(last, nn.Linear)
        nn.init.zeros_(last.weight)
        nn.init.constant_(last.bias, value)
    features, query = some_features(actor, 4), torch.zeros(4, 1)
    confidence, is_last = torch.tensor([0.1, 0.6, 0.1, 0.6]), torch.tensor([False, False, True, True])
    targets = learner.targets(Transitions(features, query, features, confidence, is_last))
    torch.testing.assert_close(targets, torch.tensor([0.4, 0.6, 0.1, 0.6]) - COST)


def test_the_steps_of_a_round_follow_each_other() -> None:
    """Half of the episodes query the place that tells something, and are surer after every query."""
    belief, actor = Elsewhere(), PosteriorActor(dim=1, context=1)
    nn.init.zeros_(actor.layers[-1].weight)  # type: ignore[arg-type]
    bias = torch.tensor([torch.atanh(torch.tensor(BEST / (3 * SPREAD))), -9.0])
    actor.layers[-1].bias = nn.Parameter(bias)
    spread = torch.tensor([0.0, torch.nan])
    played = play_round(
        LearnedQueries(belief, actor, 0.1), BinarySearch(dim=1), spread, torch.Generator().manual_seed(4)
    )
    steps = played.steps
    assert len(steps.is_last_B) == int(played.length_B.sum())
    assert int(steps.is_last_B.sum()) == 2
    told = (steps.query_BQ[:, 0] * LINE.unit_scale - BEST).abs() < WIDTH
    before = torch.sigmoid(5 * steps.features_BF[:, 2])
    torch.testing.assert_close(steps.next_confidence_B - before, 0.3 * told.float(), atol=1e-4, rtol=0)


@pytest.mark.slow
def test_the_actor_moves_to_the_query_that_tells_something() -> None:
    """The posterior's samples are about 0, one and a half standard deviations from the only query that helps.

    The divergence from the posterior holds it back on its way there.
    """
    belief, actor = Elsewhere(), PosteriorActor(dim=1, context=1)
    asked = LearnedQueries(belief, actor, 0.1)
    learned = learn_actor(asked, BinarySearch(dim=1), ActorLimit(rounds=12), seed=1)
    assert learned.updates == 12 * 200
    rng = torch.Generator().manual_seed(0)
    draws = asked.assess(belief.begin(torch.full((4000, 1), 0.1)), (0.1,), rng, query_spread=1.0).query[:, 0, 0]
    sampled = SPREAD * torch.randn(4000, generator=rng)
    near = [float(((place - BEST).abs() < WIDTH).double().mean()) for place in (draws, sampled)]
    assert near[0] > 1.4 * near[1], "more of its queries tell something than of posterior samples"
    assert float(draws.std()) < 2 * SPREAD


@pytest.mark.filterwarnings("ignore::cicpe.UnservedWarning")
def test_a_learned_actor_is_saved_loaded_and_left_behind(tmp_path: Path) -> None:
    problem = BinarySearch(dim=1, noise=0.02)
    short: dict[str, Any] = {"updates": 4, "calibration_episodes": 100, "settings": {"horizon": 3}}
    model = cicpe.train(problem, recipe="answers", actor="td3", epsilon=(0.6, 0.8), **short)
    assert model.description.training.query_rule == "td3"
    model.save(tmp_path)
    again = cicpe.load(tmp_path)
    assert again.calibration == model.calibration
    context = torch.full((3, len(model.description.context_names)), 0.1)
    first, second = (
        m.belief.assess(m.belief.begin(context), (0.3,), torch.Generator().manual_seed(1)) for m in (model, again)
    )
    assert torch.equal(first.query, second.query)
    sampled = cicpe.with_actor(again, "ts", episodes=100)
    assert not [name for name in sampled.belief.tensors() if name.startswith("actor.")]


def test_a_learned_actor_needs_queries_that_are_answers() -> None:
    with pytest.raises(InvalidInput, match="both spaces must be one"):
        cicpe.train("gp-max", recipe="answers", actor="td3", updates=2)
