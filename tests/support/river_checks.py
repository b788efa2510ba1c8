"""river's own checks of an estimator, on rows with targets that it takes."""

from typing import Any

from river import checks

from stream_dr.adapters.river import to_river
from tests.support.river_rows import first_kind, small, stream


def run_checks(key: str, feature_map: dict[str, Any] | None) -> None:
    """Run river's checks of the estimator `key` behind a feature map."""
    model = to_river(small(key).set_params(feature_map=feature_map))
    for check in checks.yield_checks(model):
        # river's own data set has targets of one kind only.
        if "dataset" in getattr(check, "keywords", {}):
            rows = 40 if check.__name__ == "check_bounded_memory_growth" else 20
            check.keywords["dataset"] = stream(rows, first_kind(key))
        check(model.clone())
