"""The general belief: how well a candidate answer explains the history, by a likelihood learned from simulations."""

import time
from dataclasses import replace
from typing import ClassVar, Literal, final, get_args

import torch
from pydantic import Field

from cicpe.beliefs.answers.actor import ACTOR_SHARE, LearnedQueries
from cicpe.beliefs.answers.belief import AnswerBelief, QueryConfig
from cicpe.beliefs.answers.grid import MOST_TABLE, GridSearch
from cicpe.beliefs.answers.joint_heads import AnyHead, Heads
from cicpe.beliefs.answers.learn import Family, Learner, LearningSizes, Limit
from cicpe.beliefs.answers.model import AnswerModel
from cicpe.beliefs.answers.norms import LossNorm
from cicpe.beliefs.answers.particles import ParticleSearch
from cicpe.beliefs.answers.prior import PriorSizes
from cicpe.beliefs.answers.queries import Goal, Lookahead
from cicpe.beliefs.answers.success import Success
from cicpe.beliefs.base import (
    FALL,
    Belief,
    CalibrationPlan,
    ComputedBeliefConfig,
    FitRequest,
    FittedBelief,
    Sampling,
    TaskShape,
)
from cicpe.beliefs.budget import Budget
from cicpe.beliefs.sampled import SampledQueries, check_rule
from cicpe.config import GrownConfig
from cicpe.errors import InvalidInput
from cicpe.problems.base import Problem, TaskBatch
from cicpe.spaces import Space

STEADY_HASTY = 0.9985
"""Confidence at which calibration in a hurry may leave an episode of particles, which can be surer than right."""
LONGER_SHARE = 0.3
"""Share for learning on, of what a race has left."""
LONGER_SHARE_ON_FEW = 0.55
"""The same where observations are few: a better likelihood is worth more than a closer threshold."""
LOOK_SHARE = 0.06
"""Share for looking at tasks before that."""
FINEST, COARSEST, FINEST_OF_FEW = 512, 128, 4096
"""Candidates on a line: five per epsilon, within the first two; two per epsilon up to the third."""
MOST_ON_LINE = 131_072
"""Pairs of a candidate and a point of the nuisance, at most, for more candidates than ``FINEST``."""

RIVALS: dict[Goal, tuple[Goal, ...]] = {"information": ("agreement",)}
"""What a query is to tell, and what else a race compares it with."""
MOST_SCATTERED, MOST_SCATTERED_ANSWERS = 8, 4
"""Hidden numbers of which even points can be kept: where they give the answer, and answers with what else is hidden."""
EVEN_QUERIES, FEWEST_QUERIES, MOST_QUERIED = 400, 120, 3
"""Queries of a table where they have several coordinates, at most and at least, and how many coordinates at most."""
MOST_EVEN = 2048
"""Even queries on a line, at most, where epsilon asks for them."""
MOST_PAIRS = 14_000_000
"""Pairs of a query and a place of such a table: a quarter of a minute of the network."""
MOST_UNTABLED = 32_768
"""Places of a grid without a table, where every update asks the network for all that still matter."""


@final
class AnswerBeliefConfig(ComputedBeliefConfig, GrownConfig):
    """A likelihood of answers and what else is hidden, learned from simulations; inference is a search over answers."""

    LATER: ClassVar[frozenset[str]] = frozenset(
        {"gives_answer", "answer_values", "loss_numbers", "loss_values", "even_queries", "line_points", "answer_scored"}
        | {"query_offsets", "actor_spread", "steady", "coupled", "tilted", "loss_wraps"}
    )

    kind: Literal["answers"] = "answers"
    actor: Literal["answers", "td3"] | Sampling = "answers"
    """Queries are chosen for what they tell about the answer (``queries.goal``), or by one of the paper's rules."""
    actor_spread: float = Field(default=1.0, ge=0)
    """Spread of the queries of a learned actor; found by its training."""
    horizon: int = Field(default=200, ge=1, le=10**6)
    hidden: int = Field(default=32, ge=4)
    """Units of the network."""
    steps: int = Field(default=8, ge=1)
    """Observations per simulated task."""
    batch: int = Field(default=512, ge=8)
    """Simulated tasks per update."""
    learning_rate: float = Field(default=4e-3, gt=0)
    prior_draws: int = Field(default=20_000, ge=1024, le=10**7)
    """Simulated tasks that the prior is made of, at most."""
    points: int = Field(default=512, ge=64, le=10**6)
    """Particles, where answers are no line."""
    queries: QueryConfig = QueryConfig()
    """How queries are chosen."""
    heads: tuple[AnyHead, ...] = ()
    """How observations are distributed; found by the fit."""
    coupled: bool = False
    """Whether their entries depend on each other, given everything that is hidden; found by the fit."""
    nuisance: int | None = None
    """Hidden numbers beside the answer; found by the fit, None where they cannot be read."""
    gives_answer: bool = False
    """Whether the answer is a function of those numbers; found by the fit."""
    answer_values: int = 0
    """How many values that function has, where they are a finite set; found by the fit."""
    answer_scored: bool = False
    """Whether that function reads the numbers' normal scores; found by the fit, not in models of earlier versions."""
    codes: int = 0
    """Points that stand for a nuisance which cannot be read; found by the fit."""
    draws: int = 0
    """Simulated tasks that the prior is made of; found by the fit."""
    tilted: bool = False
    """Whether hidden numbers depend on each other in another way than those of a Gaussian copula; found by the fit."""
    learned_success: bool = False
    """Whether the loss is something else than a distance; found by the fit."""
    loss_norm: LossNorm | None = None
    """Which norm of the difference it is, where it is another one than the space's distance; found by the fit."""
    loss_wraps: tuple[int, ...] = ()
    """Coordinates of the answer whose ends are the same place to such a norm; found by the fit."""
    loss_numbers: int = 0
    """Hidden numbers beside the target that it depends on; found by the fit."""
    loss_values: int = 0
    """How many answers there are where it depends on such numbers, if they are a finite set; found by the fit."""
    on_grid: bool = False
    """Whether all candidates, or even points of all that is hidden, are kept; found by the fit."""
    steady: bool = False
    """Whether confidence is held to what it was one observation ago; found by the fit: where particles are followed,
    but for models of earlier versions, until they are calibrated anew."""
    even_queries: int = 0
    """Queries of several coordinates that are compared, where a table of them is kept; found by the fit."""
    line_points: int = 0
    """Candidates on a line; found by the fit. As many as epsilon asks for where it is 0, as in earlier versions."""
    query_offsets: tuple[float, ...] = ()
    """Of the scale of queries, per coordinate (``query_scale.py``); none where it is even; found by the fit."""
    fixed_context: tuple[float, ...] | None = None
    """The context, where all tasks have the same; found by the fit."""

    @property
    def fit_share(self) -> float:
        return 0.5 - ACTOR_SHARE / 2 if self.actor == "td3" else 0.5

    @property
    def query_rule(self) -> str:
        return self.queries.goal if self.actor == "answers" else self.actor

    @property
    def search(self) -> str:
        return "grid" if self.on_grid else "particles"

    @property
    def calibration(self) -> CalibrationPlan:
        return CalibrationPlan(
            max_episodes=8192 if self.on_grid else 4096,
            min_share=0.0,
            n_epsilons=5,
            n_context_knots=3,
            chunk=128,
            shortens=True,
            fall=FALL,
            hasty=STEADY_HASTY if self.steady else 0.995,
            alarm_episodes=256,
            alarm_ranked=199,
            alarm_knots=1,
            verify_episodes=60,
            query_spreads=(self.actor_spread if self.actor == "td3" else 0.0,),
        )

    @property
    def other_actors(self) -> tuple[str, ...]:
        return (*super().other_actors, "td3")

    def renewed(self) -> "AnswerBeliefConfig":
        return self.model_copy(update={"steady": not self.on_grid})

    def _check_queries(self, query_space: Space, answer_space: Space) -> None:
        if self.actor != "answers":
            check_rule(self.actor, query_space, answer_space)
        elif self.queries.goal == "none":
            raise InvalidInput("queries.goal", "none", f"{', '.join(get_args(Lookahead))}, unless an actor is named")

    def fit(self, request: FitRequest) -> FittedBelief:
        self._check_queries(request.problem.query_space, request.problem.answer_space)
        began, problem, budget = time.perf_counter(), request.problem, request.budget
        seconds = None if budget.minutes is None else self.fit_share * 60 * budget.minutes
        sizes = LearningSizes(self.hidden, self.steps, self.batch, self.learning_rate, self.prior_draws)
        request.callback.on_stage("looking at simulated tasks", 0.0)
        family = Family.look(problem, sizes, request.seed, None if seconds is None else LOOK_SHARE * seconds)
        spent = time.perf_counter() - began
        limit = Limit(None if seconds is None else max(1.0, seconds - spent), budget.updates)
        learner = family.learn(limit, lambda share: request.callback.on_stage("learning what observations tell", share))
        if self.actor == "td3":
            learner.model = learner.model.with_actor()
        return self._fitted(family, learner, began, request.seed)

    def _fitted(
        self, family: Family, learner: Learner, began: float, seed: int, most_scattered: int = MOST_SCATTERED
    ) -> FittedBelief:
        """The belief of what was learned, which can be gone on with."""
        problem, model, prior = family.problem, learner.model, learner.model.prior
        context = TaskBatch.draw(problem, 256, torch.Generator().manual_seed(seed + 5)).context
        same = bool((context == context[:1]).all())
        on_grid = self._suits_a_grid(model, most_scattered)
        config = self.model_copy(
            update={
                "heads": model.heads.heads,
                "coupled": model.heads.coupled,
                "nuisance": None if family.nuisance is None else prior.sizes.nuisance,
                "gives_answer": prior.sizes.gives_answer,
                "answer_values": prior.sizes.values,
                "answer_scored": prior.sizes.gives_answer and prior.sizes.scored,
                "codes": 0 if model.codes is None else len(model.codes.points_KD),
                "draws": prior.sizes.draws,
                "tilted": prior.sizes.tilted,
                "learned_success": model.success.learned,
                "loss_norm": model.success.norm,
                "loss_wraps": model.success.wraps,
                "loss_numbers": model.success.numbers,
                "loss_values": len(model.success.values_NX) if model.success.numbers else 0,
                "on_grid": on_grid,
                "steady": not on_grid,
                "query_offsets": model.query_scale.offsets,
                "fixed_context": tuple(context[0].tolist()) if same else None,
            }
        )
        config = config.model_copy(update={"line_points": config._affordable_candidates(model)})
        config = config.model_copy(update={"queries": config._fine_queries(model)})
        config = config.model_copy(update={"even_queries": config._affordable_queries(model)})

        def longer(budget: Budget) -> FittedBelief:
            share = LONGER_SHARE_ON_FEW if learner.had_few else LONGER_SHARE
            seconds = None if budget.minutes is None else share * 60 * budget.minutes
            further = Limit(seconds, budget.updates)
            return self._fitted(family, learner.longer(further), began, seed, most_scattered)

        belief = config.belief(model, min(self.horizon, problem.horizon))

        def rival(goal: Goal) -> FittedBelief:
            queries = self.queries.model_copy(update={"goal": goal})
            fit = self.model_copy(update={"queries": queries})._fitted(family, learner, began, seed, most_scattered)
            assert isinstance(fit.config, AnswerBeliefConfig)
            # The search is shared: its tables do not depend on what a query is to tell.
            return fit._replace(belief=replace(belief, config=fit.config.queries))

        def variants() -> list[FittedBelief]:
            goals = RIVALS.get(self.queries.goal, ()) if self.actor == "answers" else ()
            is_scattered = isinstance(belief.search, GridSearch) and not belief.search.has_candidates
            return [rival(goal) for goal in goals] + (alternatives() if is_scattered else [])

        def alternatives() -> list[FittedBelief]:
            # Even points may be too far apart for what observations tell; particles close in on it.
            scattered = isinstance(belief.search, GridSearch) and belief.search.is_scattered
            return [self._fitted(family, learner, began, seed, most_scattered=0)] if scattered else []

        spent = time.perf_counter() - began
        return FittedBelief(config.asked(belief), config, learner.updates, spent, longer, variants, alternatives)

    def _suits_a_grid(self, model: AnswerModel, most_scattered: int) -> bool:
        """Whether all candidates can be kept: an unread nuisance needs it, a line allows it."""
        sizes = model.prior.sizes
        if (sizes.gives_answer or sizes.tilted) and sizes.latent > most_scattered:
            return False
        if model.codes is not None or model.prior.values() is not None or model.answer_space.dim == 1:
            return True
        return model.prior.latent_MV.shape[1] <= min(most_scattered, MOST_SCATTERED_ANSWERS)

    def _fine_queries(self, model: AnswerModel) -> QueryConfig:
        """Even queries on a line that are no farther apart than epsilon, where it may be answers that are queried."""
        queries, space = self.queries, model.query_space
        if not self.on_grid or space.dim != 1 or space != model.answer_space:
            return queries
        pairs = len(self._grid(model).places_GV)
        room = min(MOST_EVEN, MOST_TABLE // (pairs * model.heads.parameters))
        times = 1
        while queries.even * times < self._epsilons_across(model) and 2 * times * queries.even <= room:
            times *= 2
        return queries.model_copy(update={"even": queries.even * times, "stride": queries.stride * times})

    def _affordable_queries(self, model: AnswerModel) -> int:
        """How many queries of several coordinates a table has room for that is computed in seconds; 0 where too few."""
        several = 1 < model.query_space.dim <= MOST_QUERIED
        if not (self.on_grid and several) or self.fixed_context is None:
            return 0
        pairs = len(self._grid(model).places_GV)
        affordable = min(MOST_PAIRS // pairs, MOST_TABLE // (pairs * model.heads.parameters))
        return min(EVEN_QUERIES, affordable) if affordable >= FEWEST_QUERIES else 0

    def _affordable_candidates(self, model: AnswerModel) -> int:
        """How many candidates on a line a table of queries has room for, or are looked at in time without one."""
        coarse = GridSearch(model, COARSEST)
        if not self.on_grid or coarse.is_scattered:
            return 0
        points = len(coarse.nuisance[0])
        most = max(FINEST, min(FINEST_OF_FEW, MOST_ON_LINE // points))
        if self.fixed_context is None:
            most = MOST_UNTABLED // points
        elif model.query_space.dim == 1:
            most = MOST_TABLE // (self.queries.even * points * model.heads.parameters)
        return max(COARSEST, min(self._wanted_candidates(model), most))

    def _epsilons_across(self, model: AnswerModel) -> float:
        """How many times the smallest epsilon goes into a line."""
        return 2 * float(model.answer_space.unit_scale[0]) / self.epsilon[0]

    def _wanted_candidates(self, model: AnswerModel) -> int:
        """About five per epsilon; two where it is so small that these would be very many."""
        if model.success.numbers:
            return COARSEST
        across = self._epsilons_across(model)
        return int(max(COARSEST, min(FINEST, 5 * across), min(FINEST_OF_FEW, 2 * across)))

    def _grid(self, model: AnswerModel) -> GridSearch:
        """All candidates."""
        return GridSearch(model, self.line_points or self._wanted_candidates(model))

    def belief(self, model: AnswerModel, horizon: int) -> AnswerBelief:
        """The belief of a learned model, which chooses its own queries unless another rule does."""
        search = self._grid(model) if self.on_grid else ParticleSearch(model, self.aim, self.points)
        context = None if self.fixed_context is None else torch.tensor(self.fixed_context)
        own = self.actor == "answers"
        queries = self.queries if own else self.queries.model_copy(update={"goal": "none"})
        return AnswerBelief(model, search, horizon, self.aim, queries, context, self.even_queries, self.steady)

    def asked(self, belief: AnswerBelief) -> Belief:
        """The belief as it is, or asked by one of the paper's rules."""
        if self.actor == "answers":
            return belief
        if self.actor != "td3":
            return SampledQueries(belief, self.actor)
        assert belief.model.actor is not None
        return LearnedQueries(belief, belief.model.actor, self.aim)

    def build(self, shape: TaskShape, horizon: int) -> tuple[Belief, AnswerModel]:
        self._check_queries(shape.query_space, shape.answer_space)
        sizes = PriorSizes(
            self.draws,
            shape.answer_space.dim,
            self.nuisance or 0,
            self.gives_answer,
            self.answer_values,
            self.answer_scored,
            self.tilted,
        )
        model = AnswerModel.empty(
            (shape.query_space, shape.answer_space),
            Heads(self.heads, self.coupled),
            sizes,
            len(shape.context_names),
            self.codes,
            Success(
                shape.answer_space,
                self.learned_success,
                self.loss_numbers,
                self.loss_values,
                self.loss_norm,
                self.loss_wraps,
            ),
            self.hidden,
            self.query_offsets,
        )
        model = model.with_actor() if self.actor == "td3" else model
        return self.asked(self.belief(model, horizon)), model

    def describe(self) -> str:
        if not self.heads:  # nothing is known of the family before the fit
            return "a learned likelihood of the answer and of what else is hidden"
        hidden = f"{self.codes} codes" if self.codes else f"{self.nuisance or 0} hidden numbers"
        hidden += " that give it" if self.gives_answer else ""
        where = "a grid" if self.on_grid else f"{self.points} particles"
        return f"a learned likelihood of the answer with {hidden}, on {where}"

    @classmethod
    def default_for(cls, problem: Problem) -> "AnswerBeliefConfig":
        return cls(horizon=problem.horizon)
