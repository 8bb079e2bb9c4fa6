"""What a training run is made of: one configuration, with a name for each good combination (a recipe)."""

import math
from typing import Annotated, Any, Literal, final

import torch
from pydantic import Field, model_validator

from cicpe.beliefs.base import BeliefConfig, CalibrationPlan, FitRequest, FittedBelief, TaskShape
from cicpe.beliefs.network.belief import NetworkBelief
from cicpe.beliefs.network.memories.base import Dims
from cicpe.beliefs.network.network import Network, NetworkConfig
from cicpe.beliefs.network.policy import ActorConfig
from cicpe.beliefs.network.query_rules import ActorName, Aim, make_actor
from cicpe.beliefs.network.scaling import Scaling
from cicpe.config import Config, check_range


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


@final
class TrainingConfig(BeliefConfig):
    """Every knob of training. ``cicpe.training.recipes`` names the useful combinations."""

    kind: Literal["networks"] = "networks"
    network: NetworkConfig = NetworkConfig()
    """The networks."""
    actor: ActorName = "ts"
    """The rule that chooses queries, in training and after."""

    cost: tuple[float, float] = (1e-3, 0.1)
    """Range of the cost of a query; drawn log-uniformly per episode (unless the cost is dual)."""

    first_batch: int = Field(default=64, ge=1)
    """Episodes in one rollout, and trajectories in one update, at the start: small steps first, and many."""
    batch: int = Field(default=192, ge=1)
    """The same at the end; it grows in between."""
    updates_per_rollout: int = Field(default=2, ge=1)
    """Gradient steps between rollouts."""
    replay_rollouts: int = Field(default=4, ge=1)
    """How many rollouts the replay holds."""
    horizon: int = Field(default=20, ge=1)
    """Queries per training episode at the start."""
    adapt_horizon: bool = True
    """Grow or shrink the horizon to what the smallest epsilon needs."""

    learning_rate: float = Field(default=8e-3, gt=0)
    """Adam's peak learning rate; it falls along a cosine to 1 % of this."""
    gradient_clip: float = Field(default=1.0, gt=0)
    """Largest norm of a gradient."""
    weight_average: float = Field(default=0.995, ge=0, lt=1)
    """Decay of the running average of weights that is deployed."""

    random_episodes: float = Field(default=0.05, ge=0, le=1)
    """Share of episodes with uniform queries, once training is under way (all of them at its very start)."""
    random_queries: float = Field(default=0.02, ge=0, le=1)
    """Share of single queries made uniformly."""
    query_scales: tuple[Annotated[float, Field(ge=0)], ...] = Field(default=(0.0, 0.0, 0.5, 1.0), min_length=1)
    """Spreads about the posterior mean with which training episodes are queried; one is drawn per episode."""

    prefixes: Literal["all", "sampled"] = "all"
    """Train on every prefix of a trajectory (weighted), or on one sampled prefix (the paper's)."""
    mixture: PrefixMixture = PrefixMixture()
    """The weights, or the sampling distribution, of prefixes."""
    robust_tail: float = Field(default=5.0, gt=0)
    """tau of the robust likelihood: where its tail turns logarithmic."""
    anchor_weight: float = Field(default=0.1, ge=0)
    """Weight of the SmoothL1 anchor of the mean (of the alignment term on a sphere)."""

    stop_loss: Literal["cross-entropy", "squared"] = "cross-entropy"
    """How the stop head is fitted to its target."""
    reward: Literal["deployed", "sampled"] = "deployed"
    """The stop target: success of the deployed recommendation, or of samples of the target network."""
    reward_samples: int = Field(default=16, ge=1)
    """K, for the sampled reward."""
    returns: Literal["lambda", "one-step"] = "lambda"
    """Continuation targets over the trajectory, or by one-step bootstraps."""
    shaped: bool = False
    """Let the continuation head learn the shaped value, gain of success less cost: its rule stops once that is not
    positive, and needs no stop head."""
    trace: float = Field(default=0.95, ge=0, le=1)
    """lambda of the returns."""
    discount: float = Field(default=1.0, gt=0, le=1)
    """gamma of one-step bootstraps."""
    stop_weight: float = Field(default=1.0, ge=0)
    """Weight of the stop head's loss."""
    polyak: float | None = None
    """Rate of the target network's average; None bootstraps from the network itself."""
    bootstrap_clip: tuple[float, float] | None = None
    """Quantiles of the batch to which bootstrap values are clipped."""
    target_noise: float = Field(default=0.02, ge=0)
    """Smoothing noise on target actions, in unit coordinates."""
    target_clip: float = Field(default=2.5, gt=0)
    """Largest smoothing noise on the actions of td3's target actor, in its standard deviations."""
    actor_delay: int = Field(default=2, ge=1)
    """Updates of the critic for each of the learned actor (td3)."""
    actor_start: float = Field(default=0.3, ge=0, lt=1)
    """Share of training before the learned actor's first update; where X != A, of uniform queries (td3, search)."""
    actor_rate: float = Field(default=0.25, gt=0)
    """The learned actor's share of the learning rate."""
    actor_kl: float = Field(default=0.0, ge=0)
    """beta_KL: weight of KL(I || pi), which draws the learned actor to the posterior; above 0 it is Gaussian."""

    run_past_stop: bool = True
    """Let training episodes go on past their stop, so that stopping is judged at every prefix."""
    warmup: float = Field(default=0.1, ge=0, le=1)
    """Share of training during which episodes never stop (where they may)."""
    minimum_time: int = Field(default=1, ge=0)
    """Queries before the Bellman rule may stop."""
    dual_cost: bool = False
    """One cost for all episodes, moved by the paper's dual update towards success 1 - delta."""
    dual_delta: float = Field(default=0.1, gt=0, lt=1)
    """delta of the dual update."""
    dual_rate: float = Field(default=2e-3, gt=0)
    """eta_c: step of the dual update."""
    dual_start: float = Field(default=0.01, ge=0, le=1)
    """The first cost."""
    dual_softness: float = Field(default=0.1, gt=0)
    """kappa: width of the smooth success proxy, relative to epsilon."""

    @property
    def aim(self) -> Aim:
        """What actors that look at values aim at: the middle of the trained range, so that one calibration holds."""
        return Aim(math.sqrt(math.prod(self.epsilon)), math.sqrt(math.prod(self.cost)))

    @model_validator(mode="before")
    @classmethod
    def _learned_actor(cls, data: Any) -> Any:
        """The rule td3 brings its network, where none is described; with actor_kl, a Gaussian one."""
        if not isinstance(data, dict) or data.get("actor") != "td3":
            return data
        network = data.get("network", {})
        network = network.model_dump() if isinstance(network, NetworkConfig) else network
        if not isinstance(network, dict):
            return data
        actor = network.get("actor") or {}
        actor = actor.model_dump() if isinstance(actor, ActorConfig) else actor
        if isinstance(actor, dict) and data.get("actor_kl", 0):
            actor = actor | {"gaussian": True}
        return data | {"network": network | {"actor": actor}}

    @model_validator(mode="after")
    def _ranges(self) -> "TrainingConfig":
        check_range("cost", self.cost)
        if self.polyak is None and (self.returns == "one-step" or self.reward == "sampled"):
            raise ValueError(
                "polyak = None: one-step returns and sampled rewards need a target network; give a rate such as 0.01"
            )
        if self.shaped and (self.returns != "lambda" or not self.run_past_stop or self.actor in ("td3", "search")):
            raise ValueError("shaped = True: needs lambda returns, run_past_stop, and an actor that reads no values")
        if self.prefixes == "sampled" and self.returns == "lambda":
            raise ValueError("returns = 'lambda': sampled prefixes have no trajectory to sum over; use 'one-step'")
        if self.network.actor is not None and self.actor != "td3":
            raise ValueError(
                f"network.actor is given, but actor = {self.actor!r} has no network; leave it out, or use td3"
            )
        gaussian = self.network.actor is not None and self.network.actor.gaussian
        if gaussian != (self.actor_kl > 0):
            what = "a Gaussian actor needs it above 0" if gaussian else "needs actor td3"
            raise ValueError(f"actor_kl = {self.actor_kl:g}: {what}")
        return self

    @property
    def has_checkpoints(self) -> bool:
        return True

    @property
    def query_rule(self) -> str:
        return self.actor

    @property
    def calibration(self) -> CalibrationPlan:
        return CalibrationPlan(query_spreads=self.query_scales, costs=self.cost, minimum_time=self.minimum_time)

    def fit(self, request: FitRequest) -> FittedBelief:
        from cicpe.training.run import train_network  # a saved model is loaded without the trainer

        return train_network(self, request)

    def build(self, shape: TaskShape, horizon: int) -> tuple[NetworkBelief, Network]:
        context = len(shape.context_names)
        dims = Dims(shape.query_space.dim, shape.observation_dim, context, shape.answer_space.dim)
        with torch.device("meta"):  # no memory is taken for weights that may not be there
            scaling = Scaling(shape.observation_dim, context)
            network = Network(self.network, scaling, dims, shape.query_space, shape.answer_space)
        actor = make_actor(self.actor, shape.query_space, shape.answer_space, network, self.aim)
        return NetworkBelief(network, actor, horizon, self.shaped), network

    def describe(self) -> str:
        return f"memory `{self.network.memory.kind}`"
