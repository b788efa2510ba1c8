"""Rows as river gives them, and small estimators that learn them."""

from typing import Any

import numpy as np

from stream_dr import ESTIMATORS


def small(key: str) -> Any:
    """An estimator of few rows and components, so that one-row streams stay quick."""
    parameters = ESTIMATORS[key]().get_params()
    return ESTIMATORS[key](**{"reservoir": 30} if "reservoir" in parameters else {})


def stream(n: int, kind: str | None) -> list[tuple[dict[str, float], Any]]:
    """n rows of three classes as river gives them, with a target of the kind."""
    random = np.random.default_rng(0)
    rows = []
    for i in range(n):
        x = random.normal(size=6) + 3.0 * np.eye(3, 6)[i % 3]
        y: Any = {"class": "abc"[i % 3], "multilabel": {"a": i % 3 == 0, "b": i % 2 == 0}, "continuous": float(x[0])}
        rows.append((dict(zip("uvwxyz", x.tolist(), strict=True)), y.get(kind)))
    return rows


def first_kind(key: str) -> str | None:
    """The kind of targets to learn from, None for unsupervised estimators."""
    kinds = ESTIMATORS[key].target_kinds
    return kinds[0] if kinds else None
