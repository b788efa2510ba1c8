"""held_out: whether passes of refine make a method predict better, on every tenth row.

A diagonal solution takes features to be uncorrelated. Refined, it uses their correlations, which of many features and few
rows are mostly noise, so that refining can cost accuracy. Only rows that were not learned tell.

Cost: one more state, and the passes of learning, of refine and twice of predicting.
"""

import warnings
from collections.abc import Iterator

import numpy as np

from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.rows.block import Block
from stream_dr.rows.source import Source
from stream_dr.targets.targets import labelled_rows


class _Part:
    """Every tenth of a source's rows that have a target, or all others."""

    def __init__(self, source: Source, tenth: bool) -> None:
        self._source, self._tenth = source, tenth

    def events(self, after: int = -1, until: int | None = None) -> Iterator[tuple[int, Block]]:
        """Yield (position, Block) for after < position ≤ until."""
        rows = 0
        for position, block in self._source.events(until=until):
            block = labelled_rows(block)[0]
            numbers = np.arange(rows, rows + block.rows)
            rows += block.rows
            chosen = np.flatnonzero((numbers % 10 == 9) == self._tenth)
            if position > after and len(chosen):
                yield position, block.take(chosen)


def scores_of_refining(estimator: Estimator, source: Source, tol: float, max_passes: int) -> tuple[float, float]:
    """Return the score on every tenth row before and after refining.

    Both are of the rows that were not learned: accuracy of labels, R² of numbers, NaN where there are none.

    estimator: one that predicts. It is unfitted, and learns the other nine tenths.
    source: read several times. Rows without a target are left out.
    tol, max_passes: as of `Estimator.refine`.

    Raises what learning and refining raise.
    """
    learned, tenth = _Part(source, tenth=False), _Part(source, tenth=True)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # a warning about rows that are learned for a comparison is no use to the caller
        for _, block in learned.events():
            estimator.partial_fit(block)
        before = _score(estimator, tenth)
        estimator.refine(learned, tol=tol, max_passes=max_passes)
        return before, _score(estimator, tenth)


def _score(estimator: Estimator, source: Source) -> float:
    """Return the accuracy or R² of an estimator on a source's rows, NaN where there are none."""
    from sklearn.metrics import r2_score

    shares, rows, truth, predicted = [], [], [], []
    for _, block in source.events():
        if block.y.values is None:
            shares.append(estimator.score(block._replace(y=None), block.y.row_labels()))  # type: ignore[attr-defined]
            rows.append(block.rows)
        else:
            truth.append(block.y.values)
            predicted.append(estimator.predict(block).reshape(block.y.values.shape))  # type: ignore[attr-defined]

    if truth:
        return float(r2_score(np.concatenate(truth), np.concatenate(predicted)))
    return float(np.average(shares, weights=rows)) if rows else float("nan")
