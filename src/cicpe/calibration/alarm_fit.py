"""Fits an alarm to a trained core: after training, on fresh episodes that it plays to the horizon.

The core stays as it is. First the predictive head, on prior episodes; then the detector, on prior episodes
against worlds that are off; then, on prior episodes that neither has seen, the statistics' quantiles and the
ranks that p-values come from. A wrong head or a poor detector costs power, never false alarms.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from cicpe import trees
from cicpe.agents.alarm import TAILS, Alarm, AlarmConfig, AlarmState, AlarmTables, detector_inputs, make_alarm
from cicpe.beliefs.base import Belief
from cicpe.beliefs.network.belief import NetworkBelief
from cicpe.beliefs.network.network import Network
from cicpe.beliefs.network.prediction import PredictionInputs, prediction_config, prediction_inputs
from cicpe.errors import InvalidInput
from cicpe.problems import Problem, TaskBatch
from cicpe.problems.shifted import shift_ranges
from cicpe.statistics import log_grid

KNOTS = 5
NUMBERS = 2e7
"""How many numbers of recorded features are held at once."""
HEAD_EPISODES, HEAD_UPDATES, HEAD_BATCH = 2048, 400, 1024
DETECTOR_EPISODES, DETECTOR_UPDATES, DETECTOR_BATCH = 3072, 250, 192
LEARNING_RATE = 8e-3
"""The highest, a third of the way."""
CHUNK = 1024


class Step(NamedTuple):
    """One query of a batch of episodes, and the state before it."""

    state: Any
    context: Float[Tensor, "batch context"]
    query: Float[Tensor, "batch query"]
    observation: Float[Tensor, "batch observation"]


class Fit(NamedTuple):
    """What an alarm is fitted to."""

    belief: Belief
    problem: Problem
    scale: float
    epsilon: float
    seed: int

    def rng(self, part: int) -> Generator:
        """Every part has tasks of its own."""
        return torch.Generator().manual_seed(self.seed + 7919 * part)

    def steps(self, problem: Problem, episodes: int, rng: Generator) -> Iterator[Step]:
        """Fresh episodes to the horizon, a step at a time."""
        belief, hidden = self.belief, TaskBatch.draw(problem, episodes, rng)
        state = belief.begin(hidden.context)
        for t in range(belief.horizon):
            query = belief.assess(state, (self.epsilon,), rng, self.scale).query
            observation = hidden.observe(query, rng)
            yield Step(state, hidden.context, query, observation)
            if t + 1 < belief.horizon:
                state = belief.observe(state, query, observation)


def fit_alarm(
    belief: Belief,
    problem: Problem,
    *,
    scale: float,
    epsilon: float,
    episodes: int = 4096,
    ranked: int = 999,
    knots: int = KNOTS,
    seed: int = 2,
) -> Alarm:
    """An alarm for a core on its family.

    Args:
        core: What plays.
        problem: Its prior.
        scale: Spread of the deployed queries.
        epsilon: Any of its epsilons: queries do not depend on it.
        episodes: Prior episodes for the statistics' quantiles.
        ranked: Prior episodes at every knot for the p-values: none is below 1 / (ranked + 1).
        knots: Values of a known noise level at which false alarms are held to their share.
        seed: Seeds everything.
    """
    if ranked < 99:
        raise InvalidInput("ranked", ranked, "at least 99: with fewer, no p-value is as small as 0.01")
    fit = Fit(belief, problem, scale, epsilon, seed)
    places = _knots(problem, knots)
    foresight = prediction_config(belief.network) if isinstance(belief, NetworkBelief) else None
    config = AlarmConfig(
        foresight=foresight,
        inputs=0 if foresight is None else foresight.features + 2 * foresight.entries // foresight.channels,
        knots=tuple(value for value, _ in places),
        ranked=ranked,
        horizon=belief.horizon,
        entries=problem.observation_dim,
        episodes=episodes,
        seed=seed,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        alarm = make_alarm(config, AlarmTables(config), belief)
    if isinstance(belief, NetworkBelief):
        _fit_head(fit, belief.network, alarm)
        _fit_detector(fit, alarm)
    alarm.tables.eval().requires_grad_(False)
    _measure(fit, alarm, places)
    return alarm


def _fit_head(fit: Fit, network: Network, alarm: Alarm) -> None:
    """The likelihood of what prior episodes observe."""
    head, rng = alarm.tables.head, fit.rng(1)
    assert head is not None
    rows, seen = [], []
    with torch.no_grad():
        for step in fit.steps(fit.problem, _affordable(alarm, HEAD_EPISODES), rng):
            rows.append(prediction_inputs(network, step.state, step.context, step.query))
            seen.append(network.scaling.observation(step.observation))
        inputs: PredictionInputs = trees.concatenate(rows)
        observation = torch.cat(seen)
        head.normalise(inputs.features, observation)

    def loss() -> Tensor:
        some = torch.randint(len(observation), (HEAD_BATCH,), generator=rng)
        return head.predict(trees.select(inputs, some)).log_loss(observation[some]).mean()

    _descend(head, loss, HEAD_UPDATES)


def _affordable(alarm: Alarm, episodes: int) -> int:
    """At most so many episodes, fewer where their features are many."""
    return int(min(episodes, max(256, NUMBERS / (alarm.config.inputs * alarm.channels * alarm.config.horizon))))


def _descend(module: nn.Module, loss: Callable[[], Tensor], updates: int) -> None:
    optimiser = torch.optim.Adam(module.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, LEARNING_RATE, total_steps=updates)
    for _ in range(updates):
        optimiser.zero_grad()
        loss().backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimiser.step()
        schedule.step()


def _evidence(fit: Fit, alarm: Alarm, problem: Problem, n: int, rng: Generator) -> Tensor:
    """Whole episodes as a detector sees them: step x episode x witness x inputs."""
    steps = fit.steps(problem, n, rng)
    return torch.stack(
        [
            detector_inputs(*alarm.predictor.surprise(step.state, step.context, step.query, step.observation))
            for step in steps
        ]
    )


def _fit_detector(fit: Fit, alarm: Alarm) -> None:
    """The log odds, after every observation, of a world that is off."""
    detector, rng = alarm.tables.detector, fit.rng(2)
    assert detector is not None
    worlds = shift_ranges(fit.problem)
    half = _affordable(alarm, DETECTOR_EPISODES)
    parts = [_evidence(fit, alarm, fit.problem, half, rng)]
    parts += [_evidence(fit, alarm, world, half // len(worlds), rng) for world in worlds]
    inputs_TBWF = torch.cat(parts, dim=1)
    off_B = (torch.arange(inputs_TBWF.shape[1]) >= half).float()

    def loss() -> Tensor:
        some = torch.randint(len(off_B), (DETECTOR_BATCH,), generator=rng)
        hidden, total = torch.zeros(DETECTOR_BATCH, alarm.channels, alarm.config.hidden), torch.zeros(())
        for inputs_BWF in inputs_TBWF[:, some]:
            hidden = detector.step(hidden, inputs_BWF)
            total = total + nn.functional.binary_cross_entropy_with_logits(detector.logit(hidden), off_B[some])
        return total / len(inputs_TBWF)

    _descend(detector, loss, DETECTOR_UPDATES)


def _tallies(fit: Fit, alarm: Alarm, problem: Problem, n: int, rng: Generator) -> Iterator[AlarmState]:
    """Fresh episodes as the alarm follows them, after every observation."""
    alarm_state = None
    for step in fit.steps(problem, n, rng):
        alarm_state = alarm.begin(step.context) if alarm_state is None else alarm_state
        alarm_state = alarm.observe(alarm_state, step.state, step.query, step.observation)
        yield alarm_state


def _measure(fit: Fit, alarm: Alarm, places: list[tuple[float, Problem]]) -> None:
    """Quantiles of the statistics over time, then the ranks of whole episodes."""
    rng, chunks = fit.rng(4), _chunks(alarm.config.episodes, fit.belief)
    parts = [
        torch.stack([alarm.statistics(alarm_state) for alarm_state in _tallies(fit, alarm, fit.problem, n, rng)])
        for n in chunks
    ]
    quantiles = torch.quantile(torch.cat(parts, dim=1), 1 - torch.tensor(TAILS), dim=1)
    alarm.tables.quantiles_TSJ.copy_(quantiles.permute(1, 2, 0))
    for knot, (_, problem) in enumerate(places):
        rng = fit.rng(5 + knot)
        ends = [
            list(_tallies(fit, alarm, problem, n, rng))[-1].lowest for n in _chunks(alarm.config.ranked, fit.belief)
        ]
        alarm.tables.lowest_KR[knot] = torch.cat(ends).sort().values


def _chunks(total: int, belief: Belief) -> list[int]:
    most = min(CHUNK, belief.most_at_once)
    return [min(most, total - begin) for begin in range(0, total, most)]


def _knots(problem: Problem, knots: int) -> list[tuple[float, Problem]]:
    """The problem at several known noise levels; as it is, where there is no such range."""
    noise = getattr(problem, "noise", None)
    if tuple(problem.context_names)[:1] == ("noise",) and isinstance(noise, tuple) and 0 < noise[0] < noise[1]:
        return [(value, problem.with_noise(value)) for value in log_grid(noise[0], noise[1], knots)]
    return [(0.0, problem)]
