"""What a training run is made of: a configuration per algorithm; recipes name the good combinations."""

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, cast, final

import torch
from pydantic import Field, model_validator

from cicpe.beliefs.base import BeliefConfig, CalibrationPlan, FitRequest, FittedBelief, OwnStop, TaskShape
from cicpe.beliefs.network.belief import NetworkBelief
from cicpe.beliefs.network.critic import CriticConfig
from cicpe.beliefs.network.memories.base import Dims
from cicpe.beliefs.network.memories.recurrent import RecurrentConfig
from cicpe.beliefs.network.network import Network, NetworkConfig
from cicpe.beliefs.network.policy import ActorConfig
from cicpe.beliefs.network.posteriors.gaussian import GaussianConfig
from cicpe.beliefs.network.query_rules import ActorName, Aim, make_actor
from cicpe.beliefs.network.scaling import Scaling
from cicpe.config import Config, GrownConfig, check_range
from cicpe.errors import InvalidInput

READERS: Mapping[ActorName, tuple[float, ...]] = {"ts": (0.0, 0.5, 1.0), "ttps": (0.5, 1.0), "uniform": (1.0,)}
"""Rules that need a posterior and nothing that was trained for them, and the spreads that calibration chooses among.
With a spread of 0 all draws are the mean: top-two sampling would have no challenger, and be Thompson sampling."""


@final
class PrefixMixture(Config):
    """How much weight a trajectory's prefixes get, by where they lie."""

    uniform: float = Field(default=0.6, ge=0)
    """Spread over all prefixes."""
    near_stop: float = Field(default=0.3, ge=0)
    """Around the current stopping time, where the decision changes."""
    terminal: float = Field(default=0.1, ge=0)
    """The last prefix."""

    @model_validator(mode="after")
    def _some(self) -> "PrefixMixture":
        if self.uniform + self.near_stop + self.terminal <= 0:
            raise ValueError("mixture: needs a weight above zero")
        return self


class NetworkTraining(BeliefConfig, GrownConfig):
    """What every algorithm that trains networks needs; ``TrainingConfig`` and ``PaperConfig`` are the two of them."""

    LEARNED_ACTOR: ClassVar[ActorConfig] = ActorConfig()
    """The network of the actor rule td3, where none is described."""

    network: NetworkConfig = NetworkConfig()
    """The networks."""
    actor: ActorName = "ts"
    """The rule that chooses queries, in training and after."""
    updates_per_rollout: int = Field(default=2, ge=1)
    """Gradient steps between rollouts."""
    replay_rollouts: int = Field(default=4, ge=1)
    """How many rollouts the replay holds."""
    horizon: int = Field(default=20, ge=1)
    """Queries per training episode at the start."""
    minimum_time: int = Field(default=1, ge=0)
    """Queries before the Bellman rule may stop."""

    learning_rate: float = Field(default=8e-3, gt=0)
    """Adam's peak learning rate; it falls along a cosine to 1 % of this."""
    gradient_clip: float = Field(default=1.0, gt=0)
    """Largest norm of a gradient: of inference, of the critic and of the learned actor, each on its own."""

    random_episodes: float = Field(default=0.05, ge=0, le=1)
    """Share of episodes with uniform queries, once training is under way (all of them at its very start)."""
    random_queries: float = Field(default=0.02, ge=0, le=1)
    """Share of single queries that are uniform."""
    query_spreads: tuple[Annotated[float, Field(ge=0)], ...] = Field(default=(0.0, 0.0, 0.5, 1.0), min_length=1)
    """Spreads about the posterior mean with which training episodes are queried, one drawn per episode; calibration
    chooses among them."""

    mixture: PrefixMixture = PrefixMixture()
    """The weights, or the sampling distribution, of prefixes."""
    robust_tail: float = Field(default=5.0, gt=0)
    """tau of the robust likelihood: where its tail turns logarithmic."""
    anchor_weight: float = Field(default=0.1, ge=0)
    """Weight of the SmoothL1 anchor of the mean (of the alignment term on a sphere)."""
    stop_weight: float = Field(default=1.0, ge=0)
    """Weight of the stop head's loss."""

    actor_delay: int = Field(default=2, ge=1)
    """Updates of the critic for each of the learned actor (td3)."""
    actor_start: float = Field(default=0.3, ge=0, lt=1)
    """Share of training before the learned actor's first update; where X != A, of uniform queries (td3, search). Where
    the actor imitates a guide, its updates begin at once, and queries are the guide's until then."""
    actor_rate: float = Field(default=0.25, gt=0)
    """The learned actor's share of the learning rate."""
    actor_kl: float = Field(default=0.0, ge=0)
    """beta_KL: weight of KL(I || pi), which draws the learned actor to the posterior; above 0 it is Gaussian."""

    @property
    @abstractmethod
    def costs(self) -> tuple[float, float] | None:
        """The range of costs of a query that the critic knows; None where that is not known."""

    @property
    @abstractmethod
    def aim(self) -> Aim:
        """What actors that look at values aim at, the same in all episodes, so that one calibration holds."""

    @property
    def uniform_rollouts(self) -> int:
        """How many rollouts with uniform queries the replay keeps beside the others."""
        return 0

    @property
    def has_guided_actor(self) -> bool:
        """Whether the learned actor imitates a guide before it follows the critic."""
        return False

    @property
    def values_gains(self) -> bool:
        """Whether the critic values a query by what it gains over stopping now."""
        return False

    @property
    def has_checkpoints(self) -> bool:
        return True

    @property
    def query_rule(self) -> str:
        return self.actor

    def with_actor(self, actor: str) -> "NetworkTraining":
        if actor not in READERS:
            why = "other rules follow what training has fitted to them"
            raise InvalidInput("actor", actor, f"one of {', '.join(READERS)}, which read the posterior: {why}")
        if self.kind != "networks":
            raise InvalidInput("actor", actor, "left out: a learned stop rule is one with its weights")
        rule = cast(ActorName, actor)
        # The posterior is read without the learned actor, where there was one.
        unlearned = {"network": self.network.model_copy(update={"actor": None}), "actor_kl": 0.0, "actor_probes": 0.0}
        changes = {name: value for name, value in unlearned.items() if name in type(self).model_fields}
        return self.model_copy(update={**changes, "actor": rule, "query_spreads": READERS[rule]})

    @property
    def calibration(self) -> CalibrationPlan:
        return CalibrationPlan(query_spreads=self.query_spreads, costs=self.costs, minimum_time=self.minimum_time)

    def fit(self, request: FitRequest) -> FittedBelief:
        from cicpe.training.run import train_network  # a saved model is loaded without the trainer

        return train_network(self, request)

    def build(self, shape: TaskShape, horizon: int) -> tuple[NetworkBelief, Network]:
        context = len(shape.context_names)
        dims = Dims(shape.query_space.dim, shape.observation_dim, context, shape.answer_space.dim)
        with torch.device("meta"):  # no memory is taken for weights that may not be there
            scaling = Scaling(shape.observation_dim, context)
            network = Network(self.network, scaling, dims, shape.query_space, shape.answer_space)
        return self.belief_of(network, horizon), network

    def belief_of(self, network: Network, horizon: int) -> NetworkBelief:
        """A trained network with the actor rule that it was trained with."""
        actor = make_actor(self.actor, network.query_space, network.answer_space, network, self.aim)
        return NetworkBelief(network, actor, horizon, self.values_gains)

    def describe(self) -> str:
        return f"memory `{self.network.memory.kind}`"

    @classmethod
    def migrate(cls, data: dict[str, Any]) -> dict[str, Any]:
        return migrate_training(data)

    @model_validator(mode="before")
    @classmethod
    def _learned_actor(cls, data: Any) -> Any:
        """The rule td3 brings its network, where none is described; with actor_kl, a Gaussian one.

        The rule acquisition brings a critic that tells queries apart.
        """
        if not isinstance(data, dict) or data.get("actor") not in ("td3", "acquisition"):
            return data
        network = data.get("network", cls.model_fields["network"].default)
        network = network.model_dump() if isinstance(network, NetworkConfig) else network
        if not isinstance(network, dict):
            return data
        if data["actor"] == "acquisition":
            critic = network.get("critic", {})
            critic = critic.model_dump() if isinstance(critic, CriticConfig) else critic
            return data | {"network": network | {"critic": critic | {"gains": True}}}
        actor = network.get("actor") or cls.LEARNED_ACTOR
        actor = actor.model_dump() if isinstance(actor, ActorConfig) else actor
        if isinstance(actor, dict) and data.get("actor_kl", 0):
            actor = actor | {"gaussian": True}
        return data | {"network": network | {"actor": actor}}

    @model_validator(mode="after")
    def _critic_fits(self) -> "NetworkTraining":
        if self.network.critic.gains and self.kind != "networks":
            raise ValueError("network.critic.gains = True: needs our training loop (recipe fast), which fits them")
        if self.network.actor is not None and self.network.actor.scores and self.kind != "networks":
            raise ValueError("network.actor.scores = True: needs our training loop (recipe fast)")
        if self.actor == "acquisition" and not self.network.critic.gains:
            raise ValueError("actor = 'acquisition': needs network.critic.gains = True")
        return self

    @model_validator(mode="after")
    def _network_fits(self) -> "NetworkTraining":
        if self.network.actor is not None and self.actor != "td3":
            raise ValueError(
                f"network.actor is given, but actor = {self.actor!r} has no network; leave it out, or use td3"
            )
        gaussian = self.network.actor is not None and self.network.actor.gaussian
        if gaussian != (self.actor_kl > 0):
            what = "a Gaussian actor needs it above 0" if gaussian else "needs actor td3"
            raise ValueError(f"actor_kl = {self.actor_kl:g}: {what}")
        return self


@final
class TrainingConfig(NetworkTraining):
    """Every knob of our training loop. ``cicpe.training.recipes`` names the useful combinations."""

    LATER: ClassVar[frozenset[str]] = frozenset({"replay_uniform", "gain_candidates", "actor_guide"})

    kind: Literal["networks"] = "networks"

    cost: tuple[float, float] = (1e-3, 0.1)
    """Range of the cost of a query; drawn log-uniformly per episode."""
    first_batch: int = Field(default=64, ge=1)
    """Episodes per rollout, and trajectories per update, at the start: small steps first, and many."""
    batch: int = Field(default=192, ge=1)
    """The same at the end; it grows in between."""
    adapt_horizon: bool = True
    """Grow or shrink the horizon to what the smallest epsilon needs, in training and then for deployment."""
    weight_average: float = Field(default=0.995, ge=0, lt=1)
    """Decay of the running average of weights that is deployed."""
    trace: float = Field(default=0.95, ge=0, le=1)
    """lambda of the returns."""
    shaped: bool = False
    """Let the continuation head learn the shaped value, gain of success less cost: its rule stops once that is not
    positive, and needs no stop head."""
    replay_uniform: int = Field(default=0, ge=0)
    """How many rollouts with uniform queries the replay keeps beside the others, however old."""
    gain_candidates: int = Field(default=8, ge=1)
    """Queries per history that the simulator answers, for a critic that tells queries apart by what they gain."""
    actor_guide: float = Field(default=0.0, ge=0)
    """Weight of what draws a learned actor that scores places to the posterior's upper confidence bound, when it begins
    to follow the critic; it falls to 0 until the end. Before, the actor imitates that bound alone; at 0, never."""

    @property
    def uniform_rollouts(self) -> int:
        return self.replay_uniform

    @property
    def has_guided_actor(self) -> bool:
        return self.actor_guide > 0

    @property
    def costs(self) -> tuple[float, float] | None:
        return self.cost

    @property
    def calibration(self) -> CalibrationPlan:
        return super().calibration._replace(lengthens=self.adapt_horizon)

    @property
    def values_gains(self) -> bool:
        return self.shaped

    @property
    def aim(self) -> Aim:
        """The middle of the trained ranges."""
        return Aim(math.sqrt(math.prod(self.epsilon)), math.sqrt(math.prod(self.cost)))

    @model_validator(mode="after")
    def _consistent(self) -> "TrainingConfig":
        check_range("cost", self.cost)
        if self.shaped and self.actor in ("td3", "search", "acquisition"):
            raise ValueError("shaped = True: needs an actor that reads no values (not td3, search or acquisition)")
        scores = self.network.actor is not None and self.network.actor.scores
        if scores and not (self.network.critic.gains and self.network.memory.holds_function):
            raise ValueError(
                "network.actor.scores = True: needs network.critic.gains = True and a memory that holds a function "
                "(regression)"
            )
        if self.actor_guide and not scores:
            raise ValueError(f"actor_guide = {self.actor_guide:g}: needs network.actor.scores = True")
        return self


PAPER_ACTOR = ActorConfig(hidden=128, relative=False, own_memory=True)
"""tanh(pi(h)) of an encoder of its own."""
PAPER_NETWORK = NetworkConfig(
    memory=RecurrentConfig(kind="lstm", hidden=128, readout="pooling"),
    posterior=GaussianConfig(hidden=128),
    critic=CriticConfig(hidden=128, twin=True, cost_input="none"),
    shared_memory=False,
)
"""An LSTM with query-conditioned pooling for inference and another for the critic, which has twins."""
SMALLEST_COST = 1e-6
"""What a cost of 0 is deployed as: thresholds, and critics that see the logarithm, need one above it."""
QUERIES_FOR_SUCCESS = 10
"""How many horizons of queries are worth one success at the smallest cost, where no smallest cost is given."""


@final
class PaperConfig(NetworkTraining):
    """Every knob of the published algorithm (``cicpe.training.paper``)."""

    LATER: ClassVar[frozenset[str]] = frozenset(
        {"dual_waits", "dual_floor", "saturation_price", "prefixes", "deployed_spread", "grow_horizon", "stop_slope"}
    )
    LEARNED_ACTOR: ClassVar[ActorConfig] = PAPER_ACTOR

    kind: Literal["paper"] = "paper"

    network: NetworkConfig = PAPER_NETWORK
    """The networks."""
    batch: int = Field(default=128, ge=1)
    """Episodes per rollout, and trajectories per update."""
    updates_per_rollout: int = Field(default=4, ge=1)
    """Gradient steps between rollouts."""
    replay_rollouts: int = Field(default=64, ge=1)
    """How many rollouts the replay holds."""
    horizon: int = Field(default=100, ge=1)
    """Queries per training episode, at the start where it grows."""
    grow_horizon: bool = False
    """Whether episodes get longer, up to the problem's horizon, while success at their end is short of 1 - delta: short
    ones make quick updates, and are enough for most problems."""
    minimum_time: int = Field(default=3, ge=0)
    """Queries before the Bellman rule may stop."""
    learning_rate: float = Field(default=1e-3, gt=0)
    """Adam's peak learning rate; it falls along a cosine to 1 % of this."""
    query_spreads: tuple[Annotated[float, Field(ge=0)], ...] = Field(default=(1.0,), min_length=1)
    """Spreads about the posterior mean with which training episodes are queried: 1 is a posterior sample."""
    deployed_spread: float | None = Field(default=None, ge=0)
    """The spread of the trained agent's queries: the dual update of the cost counts the episodes of that spread. 0 is
    the greedy mode of the paper's evaluations; None counts all episodes, and calibration chooses among the spreads."""
    mixture: PrefixMixture = PrefixMixture(uniform=0.5, near_stop=0.25, terminal=0.25)
    """The sampling distribution of prefixes."""
    prefixes: int = Field(default=1, ge=1)
    """Prefixes that are sampled from each trajectory of an update. Its history is encoded once for all of them, so more
    of them are more supervision for nearly the same work."""

    stop_slope: float = Field(default=0.0, ge=0, le=0.25)
    """The least slope of the stop head's sigmoid in the gradient of its squared error; at 0, a head that has learned
    that nothing succeeds yet is slow to learn that something does."""
    reward_samples: int = Field(default=16, ge=1)
    """m, the posterior samples of a reward."""
    discount: float = Field(default=1.0, gt=0, le=1)
    """gamma of one-step bootstraps."""
    polyak: float = Field(default=0.01, gt=0, le=1)
    """Rate at which the target network follows."""
    bootstrap_clip: tuple[float, float] | None = (0.05, 0.95)
    """Quantiles of the batch to which bootstrap values are clipped."""
    target_noise: float = Field(default=0.02, ge=0)
    """Smoothing noise on target queries, in unit coordinates."""
    target_clip: float = Field(default=2.5, gt=0)
    """Largest smoothing noise on the queries of td3's target actor, in its standard deviations."""
    saturation_price: float = Field(default=0.0, ge=0)
    """Price on saturating the learned actor's tanh; none is published."""
    warmup: float = Field(default=0.1, ge=0, le=1)
    """Share of training during which episodes never stop and the cost does not move."""
    dual_waits: bool = True
    """Whether the warm-up lasts until success at the horizon exceeds 1 - delta, however long that takes: before, every
    update would only lower the cost. (The published text does not say; False ends it after its share.)"""

    dual_delta: float = Field(default=0.1, gt=0, lt=1)
    """delta of the dual update of the cost: it aims at success 1 - delta."""
    dual_rate: float = Field(default=2e-3, gt=0)
    """eta_c: step of the dual update."""
    dual_start: float = Field(default=0.01, ge=0, le=1)
    """The first cost."""
    dual_floor: float | None = Field(default=None, ge=0, le=1)
    """The smallest cost; 1 / (10 horizon) where not given, and 0 as published. At 0 it never pays to stop."""
    dual_softness: float = Field(default=0.1, gt=0)
    """kappa: width of the smooth success proxy, relative to epsilon."""
    trained_cost: float | None = Field(default=None, gt=0, le=1)
    """The cost that training ended with, which is the one that the critic knows; None before the end of a run."""

    @property
    def smallest_cost(self) -> float:
        """The cost below which the dual update does not go."""
        return 1 / (QUERIES_FOR_SUCCESS * self.horizon) if self.dual_floor is None else self.dual_floor

    @property
    def calibration(self) -> CalibrationPlan:
        plan = super().calibration
        if self.deployed_spread is not None:
            return plan._replace(query_spreads=(self.deployed_spread,))
        actor = self.network.actor
        # A deterministic actor is deployed without the noise that it explores with.
        return plan if actor is None or actor.gaussian else plan._replace(query_spreads=(0.0,))

    @property
    def has_guided_actor(self) -> bool:
        return self.network.actor is not None and self.network.actor.imitates_unseen

    @property
    def own_stop(self) -> OwnStop | None:
        return None if self.trained_cost is None else OwnStop(self.trained_cost, self.dual_delta)

    @property
    def costs(self) -> tuple[float, float] | None:
        return None if self.trained_cost is None else (self.trained_cost, self.trained_cost)

    @property
    def aim(self) -> Aim:
        """The middle of the trained range, at the first cost."""
        return Aim(math.sqrt(math.prod(self.epsilon)), max(self.dual_start, SMALLEST_COST))


SWITCHES = {
    "prefixes": ("all", "sampled"),
    "stop_loss": ("cross-entropy", "squared"),
    "reward": ("deployed", "sampled"),
    "returns": ("lambda", "one-step"),
    "run_past_stop": (True, False),
    "dual_cost": (False, True),
}
"""Fields of older versions that chose between the two algorithms: our value, and the published one."""


def migrate_training(data: dict[str, Any]) -> dict[str, Any]:
    """Brings the ``training`` part of a saved description to its present shape.

    Older versions described both algorithms by the fields of one configuration, of kind ``networks``.

    Args:
        data: What a model's ``config.json`` says under ``training``; it is left as it is.

    Returns:
        The same of kind ``networks`` or ``paper``, without the fields that the algorithm does not have. What is
        of another kind, or has the present shape, is returned unchanged.

    Raises:
        ValueError: The description mixes the two algorithms, which this version does not train.
    """
    if data.get("kind", "networks") != "networks" or not data.keys() & SWITCHES.keys():
        return data
    is_paper = data.get("returns") == "one-step"
    for name, values in SWITCHES.items():
        if data.get(name, values[0]) != values[is_paper]:
            raise ValueError(
                f"{name} must be {values[is_paper]!r} where returns is {data.get('returns', 'lambda')!r}; "
                f"got {data[name]!r}: an older version could mix the two algorithms, this one does not"
            )
    ours, published = TrainingConfig.model_fields.keys(), PaperConfig.model_fields.keys()
    dropped = {"query_scales", *SWITCHES, *(ours - published if is_paper else published - ours)}
    kept = {name: value for name, value in data.items() if name not in dropped}
    if "query_scales" in data:
        kept["query_spreads"] = data["query_scales"]
    return kept | {"kind": "paper" if is_paper else "networks"}
