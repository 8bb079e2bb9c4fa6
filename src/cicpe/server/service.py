"""Campaigns at hand: models are read once, and sessions are kept so that only news is replayed."""

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, final

import numpy as np

from cicpe import zoo
from cicpe.errors import InvalidInput, ModelError
from cicpe.model import Model, load
from cicpe.server.schemas import (
    BeliefThen,
    CampaignSetting,
    CampaignView,
    ContextRange,
    Limits,
    ModelView,
    NewCampaign,
    PlotData,
)
from cicpe.sessions.campaign import Campaign
from cicpe.sessions.session import Session
from cicpe.sessions.stores import CampaignRecord, Store
from cicpe.spaces import Interval
from cicpe.units import Units

KEPT = 32
"""Campaigns whose sessions are kept."""
MODELS = 8
"""Models that are kept."""
OWN = " (trained here)"
"""What tells a model of the server's own from another of that name."""


class Held(NamedTuple):
    """A campaign that was opened before, as it was then."""

    session: Session
    setting: CampaignSetting


def _models_by_name(folders: Sequence[str | Path]) -> dict[str, str]:
    """The zoo and some folders by their names; no folder takes the name of another model."""
    known = {name: name for name in zoo.names()}
    for folder in map(Path, folders):
        place = folder.resolve()
        if known.setdefault(place.name, str(place)) != str(place):
            raise InvalidInput("model", str(folder), f"called otherwise: {place.name} is another model of this server")
    return known


@final
class CampaignService:
    """A store, the models that campaigns may be begun with, and what was opened lately. Safe for threads.

    Only the zoo and the folders named here can be begun with: which folders of this machine are read is for whoever
    starts the server to say.
    """

    def __init__(self, store: Store, folders: Sequence[str | Path] = ()) -> None:
        self.store = store
        self.models: Mapping[str, str] = _models_by_name(folders)
        """By name, where each is found."""
        self._load = lru_cache(MODELS)(load)
        self._held: OrderedDict[str, Held] = OrderedDict()
        self._lock = threading.Lock()

    def model(self, name: str) -> Model:
        """A model that campaigns may be begun with."""
        if name not in self.models:
            raise InvalidInput("model", name, f"one of {', '.join(self.models) or 'none: the zoo is empty'}")
        return self._load(self.models[name])

    def add_model(self, folder: Path) -> str:
        """Takes one more model that campaigns may be begun with.

        Args:
            folder: Where it is. Its name counts, unless another model has it: a later zoo may bring one that is so
                called.

        Returns:
            What it is called here.
        """
        place = folder.resolve()
        with self._lock:
            name = place.name if place.name not in self.models else f"{place.name}{OWN}"
            self.models = {**self.models, name: str(place)}
        return name

    def check_new_name(self, name: str) -> None:
        """Refuses a name that a model or a campaign has already."""
        if name in self.models or any(record.name == name for record in self.store.campaigns()):
            raise InvalidInput("name", name, "another: a model or a campaign is called so already")

    def begin(self, wish: NewCampaign) -> Campaign:
        """A new campaign."""
        model = self.model(wish.model)
        names = model.description.context_names
        for name, value in wish.context.items():
            if name not in names:
                raise InvalidInput("context", {name: value}, f"given by name: {', '.join(names) or 'none'}")
        reference = self.models[wish.model]
        epsilon, delta = model.promise(wish.epsilon, wish.delta)
        known = {"context": model.full_context(wish.context), "epsilon": epsilon, "delta": delta}
        campaign = Campaign.new(self.store, model, reference, **wish.model_dump(exclude={"model"}) | known)
        self._keep(campaign.record, Held(campaign.session.fork(), _setting(model, campaign.session)))
        return campaign

    def restart(self, campaign: Campaign, name: str) -> Campaign:
        """A new campaign with the model and the settings of another, and nothing measured."""
        record = campaign.record
        settings = record.model_dump(include={"epsilon", "delta", "seed", "stop", "context"})
        wishes = settings | {"name": name, "verify": campaign.session.verify}
        fresh = Campaign.new(self.store, self._load(record.model), record.model, **wishes)
        self._keep(fresh.record, Held(fresh.session.fork(), self._settled(fresh)))
        return fresh

    def open(self, name: str) -> Campaign:
        """A campaign as it is in the store now."""
        record = self.store.find(name)
        with self._lock:
            held = self._held.get(record.id)
        if held is not None and held.session.version > record.version:
            held = self._forget_the_future(record)
        if held is None:
            return self._opened(record)
        campaign = Campaign(self.store, record, held.session.fork())
        if campaign.session.version < record.version:
            campaign.refresh()
            self.keep(campaign)
        return campaign

    def _forget_the_future(self, record: CampaignRecord) -> Held | None:
        """What is kept may be newer than what was just read; newer than the store it is only after a restore."""
        now = self.store.get(record.id).version
        with self._lock:
            held = self._held.get(record.id)
            if held is not None and held.session.version > now:
                del self._held[record.id]
                return None
        return held

    def keep(self, campaign: Campaign) -> None:
        """Remembers how far a campaign has come."""
        held = self._held.get(campaign.record.id)
        if held is not None:
            self._keep(campaign.record, held._replace(session=campaign.session.fork()))

    def view(self, campaign: Campaign) -> CampaignView:
        """All that a campaign says."""
        held = self._held.get(campaign.record.id)
        setting = held.setting if held is not None else self._settled(campaign)
        return CampaignView(campaign=campaign.record, setting=setting, status=campaign.session.status())

    def units(self, record: CampaignRecord) -> Units:
        """The units of a campaign that was opened before; none of another, whose model need not be read for them."""
        held = self._held.get(record.id)
        return Units() if held is None else held.session.units

    def _settled(self, campaign: Campaign) -> CampaignSetting:
        return _setting(self._load(campaign.record.model), campaign.session)

    def _opened(self, record: CampaignRecord) -> Campaign:
        try:
            campaign = Campaign.open(self.store, record.id, self._load)
        except ModelError:
            self._load.cache_clear()  # it may have been put right since it was read
            campaign = Campaign.open(self.store, record.id, self._load)
        self._keep(record, Held(campaign.session.fork(), self._settled(campaign)))
        return campaign

    def _keep(self, record: CampaignRecord, held: Held) -> None:
        with self._lock:
            before = self._held.get(record.id)
            if before is None or before.session.version <= held.session.version:
                self._held[record.id] = held
            self._held.move_to_end(record.id)
            while len(self._held) > KEPT:
                self._held.popitem(last=False)


def plot_data(session: Session) -> PlotData:
    """What a plot needs beside the status."""
    trace = [
        BeliefThen(recommendation=then.recommendation.tolist(), std=then.std.tolist(), confidence=then.confidence)
        for then in session.trace()
    ]
    return PlotData(version=session.version, trace=trace, skips=list(session.skips))


def model_view(name: str, model: Model) -> ModelView:
    """What a model is for."""
    about, calibration = model.description, model.calibration
    defaults = about.default_context or (None,) * len(about.context_names)
    ranges = zip(about.context_names, about.context_low, about.context_high, defaults, strict=True)
    return ModelView(
        name=name,
        problem=about.problem,
        options=about.problem_options,
        units=about.units,
        epsilon=Limits(low=calibration.epsilons[0], high=calibration.epsilons[-1]),
        deltas=list(calibration.deltas),
        context=[ContextRange(name=n, low=low, high=high, default=default) for n, low, high, default in ranges],
        horizon=about.horizon,
        queries=model.belief.query_space.dim,
        observations=about.observation_dim,
    )


def _setting(model: Model, session: Session) -> CampaignSetting:
    query, answer = session.query_space, model.belief.answer_space
    lies = "query" if answer == query else "observation" if isinstance(answer, Interval) else None
    return CampaignSetting(
        query=_limits(session.query_limits),
        answer=_limits(session.answer_limits),
        observations=session.observation_dim,
        observed=list(session.observations.words),
        answer_lies=lies if lies != "observation" or session.observation_dim == 1 else None,
        horizon=model.belief.horizon,
    )


def _limits(ends: np.ndarray | None) -> list[Limits]:
    return [] if ends is None else [Limits(low=low, high=high) for low, high in ends.tolist()]
