"""The checks of scikit-learn that an estimator cannot pass, with the reason."""

from typing import Any

import stream_dr

WEIGHTS = [f"check_sample_weight_equivalence_on_{form}_data" for form in ("dense", "sparse")]


def expected_failed_checks(estimator: Any) -> dict[str, str]:
    """Return the names of the checks that an estimator cannot pass, and why."""
    if getattr(estimator, "decay", 1.0) != 1.0:
        return dict.fromkeys(WEIGHTS, "a row of weight 2 ages the rows before it once, two rows twice")
    failed: dict[str, str] = {}
    # The checks know scikit-learn's CCA by its name, and give it two columns of targets.
    if isinstance(estimator, stream_dr.CCA) and estimator.target == "class":
        checks = ("check_transformer_data_not_an_array", "check_transformer_general")
        failed = dict.fromkeys(checks, "a class a row is one column")
    # The checks' rows have labels of a single row with a weight of several.
    if "class" in estimator.target_kinds and getattr(estimator, "min_class_rows", 1) > 1:
        why = "a label of one row waits, whatever that row weighs; min_class_rows=1 passes"
        return failed | dict.fromkeys(WEIGHTS, why)
    if isinstance(estimator, stream_dr.PCA) and "hashing" in str(estimator.feature_map):
        why = "score: 3 features fill 3 of 64 slots, and there is no density over the others"
        return dict.fromkeys(("check_fit_score_takes_y", "check_pipeline_consistency"), why)
    return failed
