"""What a caller of training may follow."""

from collections.abc import Callable
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from cicpe.training.base import AnyTrainer, Snapshot


@final
class TrainingCallback:
    """Follows a run: the choices made, each iteration, each snapshot, and from 0 to 1 how far calibration is.

    Args:
        on_choice: Told, in words, what was chosen and why.
        on_iteration: Called with the trainer after every iteration of a training loop.
        on_snapshot: Called with what a training loop measured of itself.
        on_calibration: Told what share of calibration is done.
        on_certificate: Told how each test of a checkpoint ended.
        on_stage: Told, in words, what is being done beside that (a kind that is tried, a fit), and how far it is.
    """

    def __init__(
        self,
        on_choice: Callable[[tuple[str, ...]], None] = lambda reasons: None,
        on_iteration: "Callable[[AnyTrainer], None]" = lambda trainer: None,
        on_snapshot: "Callable[[Snapshot], None]" = lambda snapshot: None,
        on_calibration: Callable[[float], None] = lambda share: None,
        on_certificate: Callable[[str], None] = lambda line: None,
        on_stage: Callable[[str, float], None] = lambda stage, share: None,
    ) -> None:
        self.on_stage = on_stage
        self.on_choice, self.on_iteration, self.on_certificate = on_choice, on_iteration, on_certificate
        self.on_snapshot, self.on_calibration = on_snapshot, on_calibration
