"""scores: what came out of test-then-train, counted as rows go by.

`ClassScores` keeps a (labels, labels) confusion matrix; `LabelScores`, for several labels a row, four counts a label
and a histogram of scores for the area under the ROC curve. The definitions are river's: `metrics.Accuracy`, `MicroF1`,
`MacroF1` (labels seen in truth or prediction), `multioutput.ExactMatch`, `MicroAverage(F1)`, `MacroAverage(F1)`; AUC is
averaged over labels that have rows both with and without them.

Why this way: river updates one row and one label at a time, 83 million calls for RCV1's topics; the counts are the
same. AUC from 1,000 bins of scores in [−1, 1] is exact to the rows that share a bin, and memory does not grow.
"""

import numpy as np

BINS = 1_000
"""Bins of the histogram of scores."""


class ClassScores:
    """One label a row, labels as codes."""

    def __init__(self) -> None:
        self._confusion = np.zeros((0, 0), np.int64)

    def add(self, truth: np.ndarray, predicted: np.ndarray, labels: int) -> None:
        """Count (rows,) true and predicted codes below `labels`."""
        self._grow(labels)
        size = len(self._confusion)
        self._confusion += np.bincount(truth * size + predicted, minlength=size * size).reshape(size, size)

    def figures(self) -> dict[str, float]:
        """accuracy, micro_f1, macro_f1 and rows."""
        rows, right = int(self._confusion.sum()), np.diagonal(self._confusion)
        both = self._confusion.sum(0) + self._confusion.sum(1)
        accuracy = float(right.sum() / rows) if rows else float("nan")
        return {
            "accuracy": accuracy,
            "micro_f1": accuracy,
            "macro_f1": _mean(2 * right[both > 0] / both[both > 0]),
            "rows": rows,
        }

    def _grow(self, labels: int) -> None:
        known = len(self._confusion)
        if labels > known:
            grown = np.zeros((labels, labels), np.int64)
            grown[:known, :known] = self._confusion
            self._confusion = grown


class LabelScores:
    """Several labels a row, as (rows, labels) indicators and scores in [−1, 1]."""

    def __init__(self) -> None:
        self._counts = np.zeros((0, 3), np.int64)
        self._bins = np.zeros((2, 0, BINS), np.int64)
        self._exact = self._rows = 0

    def add(self, truth: np.ndarray, predicted: np.ndarray, scores: np.ndarray) -> None:
        """Count truth and prediction (rows, labels) bool and scores (rows, labels), larger where a label is
        likelier."""
        self._grow(truth.shape[1])
        both, labels = truth & predicted, np.arange(truth.shape[1])
        self._counts += np.column_stack([both.sum(0), (predicted & ~truth).sum(0), (truth & ~predicted).sum(0)])
        self._exact += int((truth == predicted).all(1).sum())
        self._rows += len(truth)
        places = labels * BINS + np.clip(((scores + 1.0) * (BINS / 2)).astype(np.int64), 0, BINS - 1)
        for side, which in enumerate((truth, ~truth)):
            found = np.bincount(places[which], minlength=len(labels) * BINS)
            self._bins[side] += found.reshape(len(labels), BINS)

    def figures(self) -> dict[str, float]:
        """accuracy (all labels of a row right), micro_f1, macro_f1, auc and rows."""
        total, size = self._counts.sum(0), 2 * self._counts[:, 0] + self._counts[:, 1] + self._counts[:, 2]
        micro = 2 * total[0] + total[1] + total[2]
        f1 = np.where(size > 0, 2 * self._counts[:, 0] / np.maximum(size, 1), 0.0)
        return {
            "accuracy": self._exact / self._rows if self._rows else float("nan"),
            "micro_f1": float(2 * total[0] / micro) if micro else float("nan"),
            "macro_f1": _mean(f1),
            "auc": self._auc(),
            "rows": self._rows,
        }

    def _auc(self) -> float:
        """Mean over labels of P(score with > score without) + half of P(equal bins)."""
        there, absent = self._bins
        known = (there.sum(1) > 0) & (absent.sum(1) > 0)
        there, absent = there[known].astype(float), absent[known].astype(float)
        below = np.cumsum(absent, axis=1) - absent
        areas = (there * (below + absent / 2)).sum(1) / np.maximum(there.sum(1) * absent.sum(1), 1)
        return _mean(areas)

    def _grow(self, labels: int) -> None:
        """Room for new labels: rows so far had none of them."""
        known = len(self._counts)
        if labels > known:
            self._counts = np.vstack([self._counts, np.zeros((labels - known, 3), np.int64)])
            more = np.zeros((2, labels - known, BINS), np.int64)
            more[1, :, 0] = self._rows
            self._bins = np.concatenate([self._bins, more], axis=1)


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else float("nan")
