"""Estimators with one parameter, or two, that are not as they come."""

import inspect
from typing import Any

from stream_dr import ESTIMATORS, hashing, random_fourier

VALUES: dict[str, list[Any]] = {
    "n_components": [1, 3],
    "gamma": [0.1],
    "shrinkage": [0.2],
    "scatter": ["exact", "diagonal"],
    "standardize": [True],
    "decay": [0.99],
    "scaling": ["source"],
    "min_class_rows": [1],
    "feature_map": [random_fourier(20), hashing(64)],
    "amnesic": [1.0],
    "center": [False],
    "a": [0.5],
    "keep": ["all"],
    "laplacian": ["clique", "star"],
    "whiten": [True],
    "alpha": [0.5, -2.0],
    "beta": [0.5],
    "kernel": ["delta", "rbf"],
    "pairs": ["share"],
    "sigma": [2.0],
    "n_fourier": [50],
    "null_space": [True],
    "n_neighbors": [3],
    "reservoir": [100],
    "weights": ["heat", "binary"],
    "temperature": [2.0],
    "edges": ["or"],
    "radius": [1.0],
    "drop_first": [False],
    "label_aware": [True],
    "reg": [0.1],
}
PAIRS = [("scatter", "diagonal", name) for name in ("standardize", "decay", "gamma", "scaling")]
PAIRS += [("standardize", True, name) for name in ("decay", "gamma", "feature_map")]


def settings() -> list[Any]:
    """Estimators, each with one parameter, or two, that are not as they come."""
    found = []
    for key in ESTIMATORS:
        kind = ESTIMATORS[key]
        taken = inspect.signature(kind).parameters
        ones = [{name: value} for name in VALUES.keys() & taken.keys() for value in VALUES[name]]
        twos = [{a: value, b: VALUES[b][0]} for a, value, b in PAIRS if {a, b} <= taken.keys()]
        for params in sorted(ones + twos, key=str):
            if _taken(key, params, {name: taken[name].annotation for name in params}):
                found.append(kind(**params))
    return found


def _taken(key: str, params: dict[str, Any], annotations: dict[str, Any]) -> bool:
    """Whether the estimator takes those values, and answers with them: PCA has no axes of a diagonal without refine."""
    named = {name: getattr(annotations[name], "__args__", ()) for name in params}
    known = all(
        params[n] in values for n, values in named.items() if values and all(isinstance(v, str) for v in values)
    )
    diagonal = ("scatter", "diagonal")
    wrong = {"pca": [diagonal], "wmv": [diagonal, ("alpha", 0.5)], "mmc": [("alpha", -2.0)]}.get(key, [])
    return known and not any(setting in params.items() for setting in wrong)
