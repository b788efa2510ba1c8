"""Score an estimator on held-out rows, before and after refine.

A "diagonal" solution ignores the correlations between features. Refine (an exact solution by
further passes over the rows) includes the correlations. With
many features and few rows, the measured correlations are mostly noise. Refine can then lower the
accuracy. Scores on learned rows do not show this, so a random tenth of the rows is held out.

The rows are read once for learning, several times for refine and twice for the scores.
"""

import warnings
from collections.abc import Iterator
from typing import Protocol, cast

import numpy as np

from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.rows.block import Block, Rows
from stream_dr.rows.source import Source
from stream_dr.targets.label_codes import Label
from stream_dr.targets.targets import drop_rows_without_target

HELD_OUT_SHARE = 0.1
"""Share of the rows that are held out. The seed is fixed."""


class _Predictor(Protocol):
    """Estimator that can predict targets."""

    def predict(self, X: Block) -> np.ndarray: ...

    def score(self, X: Block, y: list[Label]) -> float: ...


class _OneSideOfSplit:
    """Source that yields one part of another source's rows.

    The part is either the held-out rows or the rows to learn. Rows without a target are skipped.

    source: the other source.
    held_out: True for the held-out rows. False for the rows to learn.
    """

    def __init__(self, source: Source, held_out: bool) -> None:
        self._source = source
        self._held_out = held_out

    def events(self, after: int = -1, until: int | None = None) -> Iterator[tuple[int, Block]]:
        """Yield (position, Block) for after < position ≤ until.

        The Block has only the held-out rows, or only the rows to learn, as `held_out` says. Events
        without any of these rows are skipped.
        """
        # Read also events up to `after`, so that each row gets the same random number every time.
        rng = np.random.default_rng(0)
        for position, block in self._source.events(until=until):
            block = drop_rows_without_target(block)[0]
            is_held_out = rng.random(block.rows) < HELD_OUT_SHARE
            chosen = np.flatnonzero(is_held_out == self._held_out)
            if position > after and len(chosen):
                yield position, block.take(chosen)


def learn_refine_and_score_held_out(
    estimator: Estimator, source: Source, tol: float, max_passes: int
) -> tuple[float, float]:
    """Return an estimator's scores on held-out rows before and after refine.

    Returns two values:

    - Score before refine.
    - Score after refine.

    A score is the accuracy if targets are labels, and R² if targets are numbers. Both scores are
    NaN if no row is held out. Raises the errors of learning and refining.

    Parameters
    ----------
    estimator : Estimator
        Unfitted estimator that can predict. It learns all rows that are not held out.
    source : Source
        All rows, which are read several times. Rows without a target are ignored.
    tol : float
        Tolerance of the residual, as in `Estimator.refine`.
    max_passes : int
        Maximum number of passes over the rows, as in `Estimator.refine`.
    """
    learned = _OneSideOfSplit(source, held_out=False)
    held_out = _OneSideOfSplit(source, held_out=True)

    with warnings.catch_warnings():
        # Hide the warnings of this fit, because only the scores are returned to the caller.
        warnings.simplefilter("ignore")
        for _, block in learned.events():
            estimator.partial_fit(block)
        before = _accuracy_or_r2_on_source(estimator, held_out)

        estimator.refine(learned, tol=tol, max_passes=max_passes)
        return before, _accuracy_or_r2_on_source(estimator, held_out)


def _accuracy_or_r2_on_source(estimator: Estimator, source: Source) -> float:
    """Return an estimator's score on the rows of a source.

    The score is the accuracy if targets are labels, R² if targets are numbers, and NaN if there
    are no rows.
    """
    from sklearn.metrics import r2_score

    predictor = cast(_Predictor, estimator)
    accuracies: list[float] = []
    rows: list[int] = []
    truth: list[Rows] = []
    predicted: list[Rows] = []
    # Labels are scored batch by batch. R² needs the numbers of all batches together.
    for _, block in source.events():
        if block.y.values is None:
            accuracies.append(predictor.score(block._replace(y=None), block.y.targets_by_row()))
            rows.append(block.rows)
        else:
            truth.append(block.y.values)
            predicted.append(predictor.predict(block).reshape(block.y.values.shape))

    if truth:
        return float(r2_score(np.concatenate(truth), np.concatenate(predicted)))
    return float(np.average(accuracies, weights=rows)) if rows else float("nan")
