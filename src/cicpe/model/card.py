"""A page about a model, in words: the content of ``card.md``."""

from cicpe.agents.alarm import Alarm
from cicpe.calibration.table import Calibration
from cicpe.model.description import Description


def _about(about: Description) -> str:
    """What it was trained on: an experiment in its units, or a family with its options."""
    units = about.units
    if not units.settings or units.readout is None or units.epsilon is None:
        options = ", ".join(f"{key} = {value}" for key, value in about.problem_options.items()) or "none"
        return f"Options: {options}."
    chosen = ", ".join(
        f"{setting.name} from {setting.words(setting.least)} to {setting.words(setting.most)}"
        for setting in units.settings
    )
    sought = ", ".join(answer.name for answer in units.answers)
    return (
        f"An experiment: {chosen}; {units.readout.name} is read ({units.readout.kind}); sought: {sought}, within "
        f"{units.tolerance_words(units.epsilon)}. The whole file is in config.json (epsilon {units.epsilon:.4g} is "
        "that tolerance)."
    )


def card(about: Description, calibration: Calibration, alarm: Alarm | None) -> str:
    """The page.

    Args:
        about: What the model is.
        calibration: Its thresholds.
        alarm: Its alarm, if it has one.

    Returns:
        Markdown.
    """
    low, high = calibration.epsilons[0], calibration.epsilons[-1]
    text = (
        f"# {about.units.title or about.problem}\n\n"
        f"{_about(about)} Trained for epsilon from {low:g} to {high:g}, at most {about.horizon} queries.\n\n"
        f"Recipe `{about.recipe}`, actor `{about.training.query_rule}`, {about.training.describe()}, "
        f"seed {about.seed}: {about.updates} updates, {about.minutes:.1f} minutes on {about.threads} thread(s).\n\n"
        f"Thresholds were chosen on {calibration.episodes} held-out episodes "
        f"(exact binomial bound, alpha {calibration.alpha:g}).\n"
    )
    if alarm is not None:
        ranked = alarm.config.ranked * len(alarm.config.grid)
        text += f"\nIts alarm (is this history one of the prior's?) ranks histories among {ranked} prior episodes.\n"
    return text
