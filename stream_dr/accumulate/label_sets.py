"""LabelSets: sums of rows per distinct set of labels, from which HSL's clique and star Laplacians are exact in one pass.

Remembered: for each distinct label set s its weight w_s, its rows, and the mean of its rows; t_s − w_s x̄ = w_s (mean − x̄)
[MATH §3]. Clique and star weigh a row by totals known only at the end, which depend on the row through its set alone.

Cost: O(d) a dense row, O(nonzeros) a sparse one; memory 16·d bytes a set (dense), so the number of sets is capped.

Why this way: running totals instead would depend on the order of rows (up to 55° off).
"""

from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp

from stream_dr.accumulate.protocol import nested_state


@nested_state
class LabelSets(NamedTuple):
    """Frozen; stored units.

    sets: tuples of ascending codes into the state's labels. weights: (sets,) w_s. rows: (sets,) int64. sums: (sets, d)
    Σ w x.
    """

    sets: tuple[Any, ...]
    weights: np.ndarray
    rows: np.ndarray
    sums: np.ndarray

    @classmethod
    def empty(cls) -> Self:
        """Of no set."""
        return cls((), np.zeros(0), np.zeros(0, dtype=np.int64), np.zeros((0, 0)))

    def cross(self, columns: Any, mean: np.ndarray, low: np.ndarray) -> np.ndarray:
        """(d, m) Σ_s (t_s − w_s x̄) columns[s]."""
        columns = columns.toarray() if sp.issparse(columns) else columns
        return self.sums.T @ columns - np.outer(mean, self.weights @ columns)
