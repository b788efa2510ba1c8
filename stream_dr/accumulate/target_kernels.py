"""target_kernels: the compiled loop over pairs of labels of a row."""

import numpy as np

from stream_dr.accumulate.compiled import compiled


@compiled()
def add_gram(indptr: np.ndarray, codes: np.ndarray, scale: np.ndarray, gram: np.ndarray) -> None:
    """gram (k, k) += Σ_i scale_i y_i y_iᵀ, y_i the indicator of codes[indptr[i]:indptr[i + 1]]."""
    for i in range(len(scale)):
        for s in range(indptr[i], indptr[i + 1]):
            for t in range(indptr[i], indptr[i + 1]):
                gram[codes[s], codes[t]] += scale[i]
