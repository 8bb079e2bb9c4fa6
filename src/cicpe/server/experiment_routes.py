"""Experiments and their training over HTTP, one function a route."""

from typing import Any

from fastapi import APIRouter

from cicpe.experiments import Experiment
from cicpe.server.drafts import DraftService, templates
from cicpe.server.experiment_schemas import (
    EstimateView,
    EstimateWish,
    ExperimentDraft,
    ExperimentTemplates,
    ExperimentView,
    TrainingCancel,
    TrainingView,
    TrainingWish,
)
from cicpe.server.routes import new_router
from cicpe.server.schemas import Fault
from cicpe.server.service import CampaignService
from cicpe.server.training import TrainingService

BUSY: dict[int | str, dict[str, Any]] = {429: {"model": Fault, "description": "Too many at a time: try again."}}


def make_experiment_routes(service: CampaignService, drafts: DraftService, training: TrainingService) -> APIRouter:
    """The routes of the experiments that are being written, and of their training."""
    api = new_router()

    @api.get("/templates")
    def known_templates() -> ExperimentTemplates:
        """Experiments to begin with, and what a formula may hold."""
        return templates(training.folder is not None)

    @api.post("/experiments/check", responses=BUSY)
    async def check(draft: ExperimentDraft) -> ExperimentView:
        """What was understood of an experiment, with eight that might happen; or all that is wrong with it, at once."""
        return await drafts.check(draft)

    @api.post("/experiments/estimate")
    def estimate(wish: EstimateWish) -> EstimateView:
        """How many measurements to expect; it takes some seconds, and a newer wish takes its place."""
        return drafts.estimate(wish.document)

    @api.get("/training")
    def show_training() -> TrainingView:
        """How far the training is; the last one where none is under way."""
        return training.view()

    @api.post("/training", status_code=202)
    def start_training(wish: TrainingWish) -> TrainingView:
        """Begin to train a model of an experiment, in the background. One at a time: a second is refused with 409."""
        experiment = Experiment.from_document(wish.document)
        experiment.problem()  # what only a simulation shows is refused now, and not in a minute
        service.check_new_name(wish.name)
        return training.start(wish, experiment)

    @api.post("/training/cancel")
    def cancel_training(body: TrainingCancel) -> TrainingView:
        """End the training that is under way; nothing of it is kept."""
        return training.cancel(body.id)

    return api
