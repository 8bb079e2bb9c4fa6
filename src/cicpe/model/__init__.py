"""A trained model and its folder on disk. Loading one imports no trainer."""

from cicpe.model.description import Description
from cicpe.model.model import Model, load

__all__ = ["Description", "Model", "load"]
