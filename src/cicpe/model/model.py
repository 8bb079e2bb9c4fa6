"""A trained model: a frozen belief, what it was trained for, and its calibrated thresholds."""

import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, final

import torch
from torch import Tensor

from cicpe import zoo
from cicpe.agents.alarm import Alarm
from cicpe.agents.belief_agent import BeliefAgent
from cicpe.agents.stop_rules import STOP_RULES, StopRule, Threshold, rules_for
from cicpe.beliefs.base import Belief
from cicpe.calibration.table import Calibration
from cicpe.display import as_table, in_a_line
from cicpe.errors import CicpeError, InvalidInput, meant
from cicpe.frames import to_frame
from cicpe.model.card import card
from cicpe.model.description import Description
from cicpe.model.folder import ModelParts, read_folder, weights_of, write_folder
from cicpe.problems import Problem, problem_class, spec_of
from cicpe.problems.observations import ObservationKinds
from cicpe.problems.registry import make_from_class
from cicpe.problems.structure import observation_kinds
from cicpe.sessions.session import Session
from cicpe.streams import stream

if TYPE_CHECKING:
    from pandas import DataFrame

SESSION_RULE = "each"
"""The stop rule of a session where none is named."""


class ReadModel(NamedTuple):
    """What was read from a folder."""

    fingerprint: str
    """By the files as they are, whatever this version would write in their place."""
    parts: ModelParts


@final
@dataclass(frozen=True, repr=False)
class Model:
    """A frozen agent for a family of tasks and a range of (epsilon, delta)."""

    belief: Belief
    description: Description
    calibration: Calibration
    alarm: Alarm | None = None
    """Says whether a history looks like the prior's; None where none was fitted (``cicpe.fit_alarm``)."""
    family: Problem | None = field(default=None, compare=False)
    """The problem that it was trained on, while that is at hand: after training, or where loading was given it."""
    read: ReadModel | None = field(default=None, compare=False, repr=False)
    """What it was read from, if it was."""
    tried: tuple[Mapping[str, Any], ...] = field(default=(), compare=False, repr=False)
    """After training, the kinds of belief that were tried on short slices of the budget, and how each did."""

    @property
    def problem(self) -> Problem:
        """The family that the model was trained on.

        Where it is not at hand, a registered family is made again, and so is a problem of this user's own that was run
        here before. Any other is an ``UnknownProblem``: what a folder names is never imported.
        """
        if self.family is not None:
            return self.family
        return self.fitting(self.description.problem_spec.make())

    def fitting(self, problem: Problem) -> Problem:
        """Checks that the tasks of a problem have the shape that the model was trained for.

        Args:
            problem: The family; one of another shape is refused.

        Returns:
            The same problem.
        """
        misfit = self.misfit(problem)
        if misfit is not None:
            raise InvalidInput("problem", spec_of(problem).name, misfit)
        return problem

    def agent(self, epsilon: float, delta: float, stop: str = "confidence", exact: int | None = None) -> BeliefAgent:
        """The frozen agent for one (epsilon, delta), refused where the calibration does not support it.

        Args:
            epsilon: How far off an answer may be.
            delta: How often it may be farther off.
            stop: The stop rule: one that the model was calibrated for, or the one that it was trained with.
            exact: A seed, with which every episode draws once between two neighbouring thresholds, so that 1 - delta
                is met rather than exceeded: a few queries less, and no reserve for a certificate.

        Returns:
            An agent for episodes and sessions.
        """
        rule = self.calibration.rule(stop)
        stop_epsilon = self.calibration.supported_epsilon(epsilon)
        if not rule.calibrated:
            stop_epsilon, threshold = epsilon, self._trained_threshold(rule, delta)
        else:
            supported = [known.name for known in rules_for(self.belief.cost_rule)]
            if rule.name not in supported:
                raise InvalidInput("stop", rule.name, f"{' or '.join(supported)}: what this model supports")
            sharing = None if exact is None else stream(exact, "time-sharing")
            threshold = self.calibration.threshold(rule.name, stop_epsilon, delta, sharing)
        return BeliefAgent(
            self.belief,
            rule,
            threshold,
            epsilon,
            stop_epsilon,
            self.calibration.query_spread,
            self.calibration.minimum_time,
            self.alarm,
            self.calibration.platt_at(epsilon),
        )

    def _trained_threshold(self, rule: StopRule, delta: float) -> Threshold:
        """The cost that training found, refused where it found none or found it for a larger delta."""
        own = self.description.training.own_stop
        if own is None:
            supported = " or ".join(known.name for known in rules_for(self.belief.cost_rule))
            why = f"{rule.name} needs a model that was trained with its stop rule (recipe paper)"
            raise InvalidInput("stop", rule.name, f"{supported}: what this model supports; {why}")
        if delta < own.delta * (1 - 1e-9):
            what = f"for which the {rule.name} rule of this model was trained; a calibrated rule may serve less"
            raise InvalidInput("delta", delta, f"at least {own.delta:g}, {what}")
        return partial(_everywhere, own.cost)

    def unstopped(self, epsilon: float) -> BeliefAgent:
        """The same agent without a stop rule: it makes every query that it may.

        Args:
            epsilon: What its confidence is about.

        Returns:
            An agent that ends at the horizon.
        """
        return BeliefAgent(
            self.belief,
            STOP_RULES["confidence"],
            partial(_everywhere, 2.0),  # no confidence reaches it
            epsilon,
            epsilon,
            self.calibration.query_spread,
            alarm=self.alarm,
            platt=self.calibration.platt_at(epsilon),
        )

    def session(
        self,
        epsilon: float | None = None,
        delta: float | None = None,
        *,
        seed: int = 0,
        stop: str = SESSION_RULE,
        verify: int = 0,
        **context: float,
    ) -> Session:
        """A live campaign.

        Args:
            epsilon: How far off the answer may be; what the experiment file says where not given.
            delta: How often it may be farther off; likewise.
            seed: Seeds the queries.
            stop: The stop rule.
            verify: Redundant queries that are made before a stop is final, so that the alarm can tell a wrong prior.
            context: What is known beforehand, by name, such as ``noise=0.05``; see ``context_names``.

        Returns:
            A session with an empty log, or with the wish to verify in it. It speaks in the units of the experiment
            where the model has any.
        """
        epsilon, delta = self.promise(epsilon, delta)
        agent = self.agent(epsilon, delta, stop)
        values = self._context(context)
        session = Session(
            agent,
            self.belief.query_space,
            self.observations,
            values,
            epsilon,
            delta,
            seed,
            answer_space=self.belief.answer_space,
            typical_queries=self.calibration.typical_queries(stop, agent.stop_epsilon, delta, values),
            model_sha256=self.fingerprint,
            context_names=self.description.context_names,
            units=self.description.units,
        )
        if verify:
            session.ask_to_verify(verify)
        return session

    def promise(self, epsilon: float | None = None, delta: float | None = None) -> tuple[float, float]:
        """Epsilon and delta as given, and where not, as the model's experiment says.

        Args:
            epsilon: How far off an answer may be; None for what the experiment says.
            delta: How often it may be farther off; likewise.

        Returns:
            Both. A model without an experiment file refuses what was not given.
        """
        units = self.description.units
        epsilon, delta = units.epsilon if epsilon is None else epsilon, units.delta if delta is None else delta
        if epsilon is None or delta is None:
            missing = "epsilon" if epsilon is None else "delta"
            raise InvalidInput(missing, None, "given: this model was not trained on an experiment file, which says it")
        return epsilon, delta

    @cached_property
    def observations(self) -> ObservationKinds:
        """What an observation can be: as it was saved, or for older models as their family shows where that is at hand.

        A model that does not say, of a family that is neither registered nor given, takes any finite number.
        """
        about = self.description
        if about.observations is not None:
            return ObservationKinds.from_json(about.observations)
        if self.family is not None or about.problem_spec.is_registered:
            with suppress(CicpeError):  # a registered family may need data that is not here
                return observation_kinds(self.problem)
        return ObservationKinds.any_number(about.observation_dim)

    def best_offer(self, delta: float) -> tuple[float, float | None]:
        """What the model can serve: the smallest supported delta from ``delta`` up.

        Args:
            delta: How often an answer may be farther off than epsilon.

        Returns:
            The smallest epsilon of the model, or else the largest, and the delta at which it can be served; None for
            the delta where there is none.
        """
        calibration = self.calibration
        for wider in (value for value in calibration.deltas if value >= delta - 1e-9):
            for epsilon in (calibration.epsilons[0], calibration.epsilons[-1]):
                try:
                    calibration.threshold("confidence", epsilon, wider)
                except InvalidInput:
                    continue
                return epsilon, wider
        return calibration.epsilons[-1], None

    def limits(self, delta: float) -> str | None:
        """What a session cannot be asked for at a delta, of the epsilons that the model was trained for.

        Args:
            delta: How often an answer may be farther off than epsilon.

        Returns:
            A sentence with what can be served and what would help; None where all of them can.
        """
        smallest = self.calibration.epsilons[0]
        try:
            self.calibration.threshold(SESSION_RULE, smallest, delta)
            return None
        except InvalidInput as error:
            why = f"epsilon {smallest:g} cannot be served at delta {delta:g}, which must be {error.allowed}"
        epsilon, least = self.best_offer(delta)
        if least is None:
            return f"this model is not reliable at any epsilon and delta, and promises nothing: {why}"
        return f"{why}. What it can serve: epsilon {epsilon:g} at delta {least:g}"

    def full_context(self, named: Mapping[str, float]) -> dict[str, float]:
        """Every context by name: as given, and what is taken where none was named.

        Args:
            named: What is known, by name; a value outside the trained range is refused.

        Returns:
            A value per name in ``context_names``.
        """
        return dict(zip(self.description.context_names, self._context(named), strict=True))

    def _context(self, named: Mapping[str, float]) -> tuple[float, ...]:
        about = self.description
        for name in sorted(set(named) - set(about.context_names)):
            known = ", ".join(about.context_names) or "none"
            raise InvalidInput(name, named[name], f"a context of this model: {known}")
        values = []
        for i, name in enumerate(about.context_names):
            if name not in named and about.default_context is None:
                raise InvalidInput(name, None, f"a number from {about.context_low[i]:g} to {about.context_high[i]:g}")
            try:
                value = float(named.get(name, about.default_context[i] if about.default_context else 0.0))
            except (TypeError, ValueError):
                raise InvalidInput(name, named[name], "a number") from None
            self.check_context(name, value)
            values.append(value)
        return tuple(values)

    def tasks(self, context: Mapping[str, float] | None = None, problem: Problem | None = None) -> Problem:
        """The family at known contexts, which must be ones it was trained for.

        Args:
            context: Values by name; as the family draws them where not given.
            problem: Another family in the place of the model's own.

        Returns:
            The problem, with those contexts fixed.
        """
        family = problem or self.problem
        for name, value in (context or {}).items():
            if name in self.description.context_names:
                self.check_context(name, value)
        return family.with_context(**context) if context else family

    def misfit(self, problem: Problem) -> str | None:
        """In what the shape of a problem's tasks is not that of the model's own.

        Args:
            problem: The other family.

        Returns:
            The difference in words; None where there is none.
        """
        shape: dict[str, Callable[[], object]] = {
            "query_space": problem.query_space.to_json,
            "answer_space": problem.answer_space.to_json,
            "observation_dim": lambda: problem.observation_dim,  # which may draw a task, of any size
            "context_names": lambda: tuple(problem.context_names),
        }
        for name, read in shape.items():
            value = read()
            if value != getattr(self.description, name):
                return f"one with the model's {name}, {getattr(self.description, name)}; this has {value}"
        return None

    def check_contexts(self, context: Tensor) -> None:
        """Refuses tasks of which one has a context that the model was not trained for.

        Args:
            context: One row per task: n x context.
        """
        for name, values in zip(self.description.context_names, context.unbind(dim=1), strict=True):
            for value in (values.min(), values.max()):
                self.check_context(name, float(value))

    def check_context(self, name: str, value: float) -> None:
        """Refuses a context outside the range that the model was trained and calibrated for.

        Args:
            name: Which context.
            value: Its value.
        """
        i = self.description.context_names.index(name)
        low, high = self.description.context_low[i], self.description.context_high[i]
        slack = 0.01 * (high - low) + 1e-6 * abs(high)
        if not low - slack <= value <= high + slack:
            raise InvalidInput(name, value, f"from {low:g} to {high:g}, the range that this model was trained for")

    def weights(self) -> bytes:
        """The weights as they are saved.

        Returns:
            The bytes of ``weights.safetensors``.
        """
        return weights_of(self.belief, self.description)

    @property
    def sha256(self) -> str:
        """A hash of the weights, as they are saved."""
        return hashlib.sha256(self.weights()).hexdigest()

    @property
    def parts(self) -> ModelParts:
        """All that is saved of it."""
        return ModelParts(self.belief, self.description, self.calibration, self.alarm)

    @property
    def fingerprint(self) -> str:
        """A hash of everything that decides what a session does: config, weights, thresholds, alarm, problem."""
        if self.read is not None and all(
            loaded is current for loaded, current in zip(self.read.parts, self.parts, strict=True)
        ):
            return self.read.fingerprint
        return self.parts.fingerprint()

    @property
    def earlier_fingerprint(self) -> str:
        """The hash of weights and thresholds alone, by which campaigns of earlier versions know their model."""
        return hashlib.sha256((self.sha256 + self.calibration.model_dump_json()).encode()).hexdigest()

    def __repr__(self) -> str:
        return in_a_line(f"Model {self.description.problem}", self._facts())

    def _repr_html_(self) -> str:
        return as_table(f"Model {self.description.problem}", self._facts())

    def _facts(self) -> dict[str, str]:
        """What a person wants to know of it at first sight."""
        about, calibration = self.description, self.calibration
        options = ", ".join(f"{name} = {value}" for name, value in about.problem_options.items())
        epsilon, delta = self.best_offer(calibration.deltas[0])
        serves = "nothing reliably" if delta is None else f"delta {delta:g} at epsilon {epsilon:g}"
        return {
            **({"with": options} if options else {}),
            "epsilon": f"{calibration.epsilons[0]:g} to {calibration.epsilons[-1]:g}",
            "serves": serves,
            "at most": f"{about.horizon} queries",
            "recipe": f"{about.recipe} ({about.training.query_rule}), {about.minutes:.1f} min",
            "alarm": "none" if self.alarm is None else "fitted",
        }

    def to_frame(self) -> "DataFrame":
        """What was calibrated: a row for every stop rule, context, epsilon and delta, empty where none was safe enough.

        Returns:
            A pandas data frame with the threshold, and with accuracy and mean queries on the calibration episodes.
        """
        calibration, names = self.calibration, self.description.context_names
        rows = []
        for rule, table in calibration.rules.items():
            for point, by_epsilon in zip(calibration.grid.points, table, strict=True):
                for epsilon, cells in zip(calibration.epsilons, by_epsilon, strict=True):
                    for delta, cell in zip(calibration.deltas, cells, strict=True):
                        where = {"stop": rule, **dict(zip(names, point, strict=False))}
                        values = (None,) * 3 if cell is None else (cell.threshold, cell.accuracy, cell.queries)
                        figures = dict(zip(("threshold", "accuracy", "queries"), values, strict=True))
                        rows.append({**where, "epsilon": epsilon, "delta": delta, **figures})
        return to_frame(rows)

    def card(self) -> str:
        """A page about the model, in words.

        Returns:
            Markdown, as ``card.md`` holds it.
        """
        return card(self.description, self.calibration, self.alarm)

    def save(self, folder: str | Path) -> Path:
        """Writes the model's folder, whole or not at all.

        Args:
            folder: Where to; what is there of an earlier save is replaced.

        Returns:
            The folder's path.
        """
        path = Path(folder)
        if self.family is not None:
            spec_of(self.family).check_options()
        write_folder(path, self.parts, self.card())
        return path

    @classmethod
    def load(
        cls,
        folder: str | Path,
        problem: Problem | type[Problem] | str | None = None,
        *,
        changed_problem: bool = False,
    ) -> "Model":
        """Reads a model's folder; every fault is a ModelError that says which file and why.

        Args:
            folder: Where it is. Nothing that it names is imported.
            problem: What it was trained on, where that is not registered: itself, its class, or ``file.py:Class``.
            changed_problem: Take the problem though its source is not the one that the model was trained on.

        Returns:
            The model.
        """
        problems: list[Problem] = []

        def find(description: Description) -> Problem:
            if not problems:
                problems.append(given_problem(description, problem, changed_problem))
            return problems[0]

        parts, fingerprint = read_folder(Path(folder), find)
        family = None if problem is None else find(parts.description)
        model = cls(*parts, family=family, read=ReadModel(fingerprint, parts))
        for used in problems:
            model.fitting(used)
        return model


def _everywhere(threshold: float, context: Tensor) -> Tensor:
    """The same threshold in every context."""
    return torch.full((len(context),), threshold)


def given_problem(
    description: Description, problem: Problem | type[Problem] | str | None, changed_problem: bool = False
) -> Problem:
    """The problem of a model, as it was given or as it is known.

    Args:
        description: Names it, as data.
        problem: Itself, its class, or its name as one would type it; None where it has to be known.
        changed_problem: Take it though its source is not the one that the model was trained on.

    Returns:
        The problem, with the options that the model was trained with where it had to be made.
    """
    spec = description.problem_spec
    if problem is None:
        return spec.make()
    name = problem if isinstance(problem, str) else str(problem)
    cls = problem_class(problem) if isinstance(problem, str) else problem
    kind = cls if isinstance(cls, type) else type(cls)
    if not changed_problem:
        spec.check(kind, name)
    return make_from_class(cls, name, spec.options) if isinstance(cls, type) else cls


def model_folder(model: str | Path) -> Path:
    """Where a model lies. A name in the zoo means the zoo's, whatever lies in this folder; ``./name`` is a folder.

    Args:
        model: A name in the zoo, or a folder.

    Returns:
        An existing folder.
    """
    if str(model) in zoo.names():
        return zoo.folder(str(model))
    if Path(model).is_dir():
        return Path(model)
    known = ", ".join(zoo.names()) or "it is empty"
    raise InvalidInput("model", str(model), f"a folder, or one of the zoo: {known}{meant(model, zoo.names())}")


def load(
    model: str | Path, problem: Problem | type[Problem] | str | None = None, *, changed_problem: bool = False
) -> Model:
    """A trained model, by its folder or by its name in the zoo (``cicpe zoo list``).

    Args:
        model: A name in the zoo, or a folder; ``./name`` is always a folder. Nothing that a folder names is imported.
        problem: What the model was trained on, where that is a program of your own: itself, its class, or
            ``path/to/file.py:Class``. Networks and functions run sessions without it.
        changed_problem: Take the problem though its source is not the one that the model was trained on.

    Returns:
        The model.
    """
    return Model.load(model_folder(model), problem, changed_problem=changed_problem)
