"""Results as data frames, for who has pandas."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cicpe.errors import InvalidInput

if TYPE_CHECKING:
    from pandas import DataFrame


def to_frame(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> "DataFrame":
    """A data frame with a row for each mapping.

    Args:
        rows: Values by column.
        columns: Their order; needed where there may be no rows.

    Returns:
        The frame. Without pandas, which is optional, an error that says how to get it.
    """
    try:
        import pandas
    except ImportError:
        raise InvalidInput("pandas", None, "installed; it comes with the extra: pip install 'cicpe[frames]'") from None
    return pandas.DataFrame(list(rows), columns=None if columns is None else list(columns))
