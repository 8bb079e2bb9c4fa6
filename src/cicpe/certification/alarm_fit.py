"""Fits an alarm to a trained core: after training, on fresh episodes that it plays to the horizon.

The core stays as it is. First the predictive head, on prior episodes; then the detector, on prior episodes
against worlds that are off; then, on prior episodes that neither has seen, the statistics' quantiles and the
ranks that p-values come from. A wrong head or a poor detector costs power, never false alarms.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from cicpe import trees
from cicpe.agents.alarm import (
    TAILS,
    Alarm,
    AlarmConfig,
    AlarmTables,
    Foreseer,
    NetworkForeseer,
    Tally,
    detector_inputs,
)
from cicpe.agents.core import Core
from cicpe.agents.network_core import NetworkCore
from cicpe.networks.predictive import ForesightInputs, Surprise, foresight_config, foresight_inputs
from cicpe.problems import HiddenTasks, Problem
from cicpe.problems.shifts import shift_ranges

KNOTS = 5
NUMBERS = 3e7
"""How many numbers of recorded features are held at once."""
HEAD_UPDATES, HEAD_BATCH = 400, 2048
DETECTOR_UPDATES, DETECTOR_BATCH = 250, 256
CHUNK = 2048


class Step(NamedTuple):
    """One query of a batch of episodes, and the state before it."""

    state: Any
    context: Float[Tensor, "batch context"]
    query: Float[Tensor, "batch query"]
    observation: Float[Tensor, "batch observation"]


def play(core: Core, problem: Problem, episodes: int, scale: float, epsilon: float, rng: Generator) -> Iterator[Step]:
    """Fresh episodes to the horizon, a step at a time."""
    hidden = HiddenTasks.draw(problem, episodes, rng)
    state = core.begin(hidden.context)
    for t in range(core.horizon):
        query = core.look(state, (epsilon,), rng, scale).query
        observation = hidden.observe(query, rng)
        yield Step(state, hidden.context, query, observation)
        if t + 1 < core.horizon:
            state = core.observe(state, query, observation)


class Fit(NamedTuple):
    """What an alarm is fitted to."""

    core: Core
    problem: Problem
    scale: float
    epsilon: float
    seed: int
    episodes: int

    def rng(self, part: int) -> Generator:
        """Every part has tasks of its own."""
        return torch.Generator().manual_seed(self.seed + 7919 * part)

    def steps(self, problem: Problem, episodes: int, rng: Generator) -> Iterator[Step]:
        return play(self.core, problem, episodes, self.scale, self.epsilon, rng)


def fit_alarm(
    core: Core,
    problem: Problem,
    *,
    scale: float,
    epsilon: float,
    episodes: int = 8192,
    ranked: int = 1999,
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
    fit = Fit(core, problem, scale, epsilon, seed, episodes)
    places = _knots(problem, knots)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        blank = AlarmConfig(
            foresight=foresight_config(core.network),
            inputs=0,
            knots=tuple(value for value, _ in places),
            ranked=ranked,
            horizon=core.horizon,
            entries=problem.observation_dim,
            episodes=episodes,
            seed=seed,
        )
        width = blank.foresight.features + 2 * (1 if blank.foresight.per_axis else blank.foresight.entries)
        config = blank.model_copy(update={"inputs": width})
        tables = AlarmTables(config)
    foreseer = NetworkForeseer(core.network, tables.head)
    _fit_head(fit, core, tables)
    alarm = Alarm(config, tables, foreseer)
    _fit_detector(fit, alarm)
    tables.eval().requires_grad_(False)
    _measure(fit, alarm, places)
    return alarm


def _fit_head(fit: Fit, core: NetworkCore, tables: AlarmTables) -> None:
    head = tables.head
    assert head is not None
    size = head.config.features * (head.config.entries if head.config.per_axis else 1) * core.horizon
    n = int(min(4096, max(256, NUMBERS / size)))
    rows, seen = [], []
    with torch.no_grad():
        for step in fit.steps(fit.problem, n, fit.rng(1)):
            rows.append(foresight_inputs(core.network, step.state, step.context, step.query))
            seen.append(core.network.scaling.observation(step.observation))
        inputs: ForesightInputs = trees.concatenate(rows)
        observation = torch.cat(seen)
        head.normalise(inputs.features, observation)
    rng = fit.rng(2)
    optimiser = torch.optim.Adam([p for p in head.parameters() if p.requires_grad], lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 5e-3, total_steps=HEAD_UPDATES)
    for _ in range(HEAD_UPDATES):
        some = torch.randint(len(observation), (HEAD_BATCH,), generator=rng)
        loss = head(trees.select(inputs, some)).log_loss(observation[some]).mean()
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimiser.step()
        schedule.step()


class Surprises(NamedTuple):
    """Whole episodes: every step's surprise, and the features beside it."""

    surprise: Surprise
    features: Float[Tensor, "step batch witness features"]


def _surprises(fit: Fit, foreseer: Foreseer, problem: Problem, n: int, rng: Generator) -> Surprises:
    found = [
        foreseer.surprise(step.state, step.context, step.query, step.observation)
        for step in fit.steps(problem, n, rng)
    ]
    surprise, features = zip(*found, strict=True)
    return Surprises(Surprise(*map(torch.stack, zip(*surprise, strict=True))), torch.stack(features))


def _fit_detector(fit: Fit, alarm: Alarm) -> None:
    detector, foresight = alarm.tables.detector, alarm.config.foresight
    assert detector is not None and foresight is not None
    witnesses = foresight.entries if foresight.per_axis else 1
    size = alarm.config.inputs * witnesses * fit.core.horizon
    half = int(min(6144, max(256, NUMBERS / size)))
    rng, worlds = fit.rng(3), shift_ranges(fit.problem)
    parts = [_surprises(fit, alarm.foreseer, fit.problem, half, rng)]
    parts += [_surprises(fit, alarm.foreseer, world, half // len(worlds), rng) for world in worlds]
    inputs_TBWF = torch.cat([detector_inputs(*part) for part in parts], dim=1)
    prior, n = half, inputs_TBWF.shape[1]
    off = (torch.arange(n) >= prior).float()
    optimiser = torch.optim.Adam(detector.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 1e-2, total_steps=DETECTOR_UPDATES)
    for _ in range(DETECTOR_UPDATES):
        some = torch.randint(n, (DETECTOR_BATCH,), generator=rng)
        hidden = torch.zeros(DETECTOR_BATCH, witnesses, alarm.config.hidden)
        loss = torch.zeros(())
        for inputs_BWF in inputs_TBWF[:, some]:
            hidden = detector.step(hidden, inputs_BWF)
            loss = loss + nn.functional.binary_cross_entropy_with_logits(detector.logit(hidden), off[some])
        optimiser.zero_grad()
        (loss / len(inputs_TBWF)).backward()
        nn.utils.clip_grad_norm_(detector.parameters(), 1.0)
        optimiser.step()
        schedule.step()


def _tallies(fit: Fit, alarm: Alarm, problem: Problem, n: int, rng: Generator) -> Iterator[Tally]:
    """Fresh episodes as the alarm follows them, after every observation."""
    tally = None
    for step in fit.steps(problem, n, rng):
        tally = alarm.begin(step.context) if tally is None else tally
        tally = alarm.observe(tally, step.state, step.query, step.observation)
        yield tally


def _measure(fit: Fit, alarm: Alarm, places: list[tuple[float, Problem]]) -> None:
    """Quantiles of the statistics over time, then the ranks of whole episodes."""
    rng, chunks = fit.rng(4), _chunks(alarm.config.episodes)
    parts = [torch.stack([alarm.statistics(tally) for tally in _tallies(fit, alarm, fit.problem, n, rng)]) for n in chunks]
    quantiles = torch.quantile(torch.cat(parts, dim=1), 1 - torch.tensor(TAILS), dim=1)
    alarm.tables.quantiles_TSJ.copy_(quantiles.permute(1, 2, 0))
    for knot, (_, problem) in enumerate(places):
        rng = fit.rng(5 + knot)
        ends = [list(_tallies(fit, alarm, problem, n, rng))[-1].lowest for n in _chunks(alarm.config.ranked)]
        alarm.tables.lowest_KR[knot] = torch.cat(ends).sort().values


def _chunks(total: int) -> list[int]:
    return [min(CHUNK, total - begin) for begin in range(0, total, CHUNK)]


def _knots(problem: Problem, knots: int) -> list[tuple[float, Problem]]:
    """The problem at several known noise levels; as it is, where there is no such range."""
    noise = getattr(problem, "noise", None)
    if tuple(problem.context_names)[:1] == ("noise",) and isinstance(noise, tuple) and 0 < noise[0] < noise[1]:
        return [(value, problem.with_noise(value)) for value in map(float, np.geomspace(*noise, knots))]
    return [(0.0, problem)]
