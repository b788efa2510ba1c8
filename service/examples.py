"""Examples of bodies and responses for /docs and generated clients."""

from service.json_types import JsonDict

_BY = {"model": "lda", "version": 3, "position": 812, "solution": "exact"}
_MODEL = {
    "name": "lda",
    "estimator": "lda",
    "params": {"gamma": 1.0},
    "state": "live",
    "position": 812,
    "rows": 9000,
    "rows_skipped": 0,
    "lag": 0,
    "version": 3,
    "versions": [2, 3],
    "published_position": 812,
    "components": 1,
    "classes": ["a", "b"],
    "class_rows": [4400, 4600],
    "classes_waiting": [],
    "eigenvalues": [0.7],
    "solution": "exact",
    "refined_at": None,
    "residual": None,
    "bytes": 4096,
    "stale_rows": 0,
    "publish": {"rows": None, "seconds": 1.0, "idle": True},
    "refine": None,
    "failure": None,
    "publish_failure": None,
}

_OVERVIEW = {name: _MODEL[name] for name in ("estimator", "state", "rows", "lag", "stale_rows", "version")}

EXAMPLES: dict[str, JsonDict] = {
    "Rows": {"rows": [[0.1, 0.2], [0.3, 0.4]], "labels": ["a", "b"]},
    "Receipt": {"position": 812, "rows": 2, "duplicate": False},
    "Unlearn": {"positions": [812]},
    "Refine": {"tol": 1e-6, "max_passes": 20},
    "Projected": {**_BY, "z": [[0.5], [-1.2]]},
    "Predicted": {**_BY, "predicted": ["b"], "classes": ["a", "b"], "probabilities": [[0.2, 0.8]]},
    "ModelState": _MODEL,
    "Models": {"models": {"lda": _MODEL}},
    "Exported": {
        **_BY,
        "newest": 3,
        "rows": 9000,
        "kind": "linear",
        "mean": [0.2, 0.3],
        "components": [[0.7, 0.7]],
        "eigenvalues": [0.7],
    },
    "JobState": {
        "id": "5f2c9a",
        "kind": "refine",
        "model": "lda",
        "state": "running",
        "progress": {"pass": 2, "rows": 4000, "total_rows": 9000},
        "error": None,
    },
    "StreamState": {
        "position": 812,
        "rows": 9000,
        "models": ["lda"],
        "layout": "dense",
        "features": 2,
        "names": None,
        "kinds": None,
        "stated": 0,
        "target_kind": "class",
        "labels": ["a", "b"],
        "outputs": 0,
        "weighted": False,
        "allowed_labels": [],
    },
    "Overview": {
        "position": 812,
        "rows": 9000,
        "models": {"lda": {**_OVERVIEW, "components": 1, "solution": "exact"}},
    },
    "Health": {"status": "ready"},
    "Problem": {
        "type": "about:blank",
        "title": "unknown model",
        "status": 404,
        "code": "unknown_model",
        "detail": "no model is called 'pca' here; there are: lda.",
    },
}
"""Example of each schema, by its name."""
