"""Warning that there are fewer components than n_components, issued once after a fit."""

import inspect
import warnings
from contextlib import suppress
from numbers import Integral
from typing import TYPE_CHECKING

from stream_dr.errors import FewerComponents, StreamDRError

if TYPE_CHECKING:
    from stream_dr.estimators.fitting.estimator import Estimator


def warn_fewer_components(estimator: "Estimator", components: int, stacklevel: int = 4) -> None:
    """Warn FewerComponents if there are fewer components than n_components.

    The warning is issued once for each value of n_components.

    components: number of components.
    """
    fitted = estimator.fitted()
    if not _asks_for_more(estimator, components) or fitted.warned_n_components == estimator.n_components:
        return

    fitted.warned_n_components = estimator.n_components
    learned = fitted.accumulator
    labels = f" and {len(learned.labels)} labels" if learned.labels else ""
    warnings.warn(
        f"{type(estimator).__name__} has {components} components, not the n_components={estimator.n_components} asked for: "
        f"{estimator.limit} (so far {learned.rows} rows of {learned.n_features} features{labels}). transform answers with "
        f"{components}.",
        FewerComponents,
        stacklevel=stacklevel,
    )


def warn_fewer_components_early(estimator: "Estimator") -> None:
    """Warn FewerComponents after fit if there are too few rows, features or labels.

    To issue this warning a projection must be solved. It is solved only if the number of rows,
    features or labels is too small for n_components.
    """
    learned = estimator.fitted().accumulator
    enough = min(learned.rows, learned.n_features, len(learned.labels) if estimator.target_kinds else learned.rows)
    if _asks_for_more(estimator, enough - 1):
        # `rank_` raises an error if there is no solution. There is nothing to warn of then.
        with suppress(StreamDRError):
            warn_fewer_components(estimator, estimator.rank_, stacklevel=5)


def _asks_for_more(estimator: "Estimator", components: int) -> bool:
    """True if n_components is set to a number above `components`.

    A default value of n_components does not count as set.
    """
    asked = estimator.n_components
    if not isinstance(asked, Integral) or asked <= components:
        return False
    return bool(asked != inspect.signature(type(estimator)).parameters["n_components"].default)
