"""Parameters that rows were learned with may not change under what was learned; a new fit, or setting them back, helps."""

from pathlib import Path
from typing import Any

import pytest
from sklearn.base import clone

import stream_dr
from stream_dr import ESTIMATORS, errors
from tests.stream_dr.estimators.test_contract import KEYS, rows, targets

CHANGES: dict[str, Any] = {
    "scatter": "exact", "decay": 0.5, "feature_map": stream_dr.hashing(16), "laplacian": "star", "kernel": "rbf",
    "sigma": 3.0, "n_fourier": 50, "random_state": 7, "n_components": 1, "amnesic": 3.0, "center": False, "a": 3.0,
    "reservoir": 20, "label_aware": True, "labels": list("abcd"),
    "fold_count": 3, "folds_by": "id", "unlabelled": "use", "alpha": -1.0, "beta": 1.0,
}  # fmt: skip
PARAMETERS = {"fold_count": "folds"}
"""Parameters that set what has another name."""

CASES = [(key, name) for key in KEYS for name in ESTIMATORS[key].fixed if (key, name) != ("skm", "unlabelled")]
"""SKM refuses unlabelled="use" at its default a."""


@pytest.mark.parametrize(("key", "name"), CASES)
def test_what_was_learned_with_other_parameters_is_not_used(key: str, name: str, tmp_path: Path) -> None:
    X, y = rows()
    learned = targets(key, y)
    estimator = ESTIMATORS[key]().fit(X, learned)
    before, z = getattr(estimator, name), estimator.transform(X)
    parameter = PARAMETERS.get(name, name)
    estimator.set_params(**{parameter: CHANGES[name]})
    uses = [lambda: estimator.transform(X), lambda: estimator.partial_fit(X, learned), lambda: estimator.rank_]
    uses.append(lambda: estimator.save(tmp_path / "saved"))
    if estimator.additive:
        uses += [lambda: estimator.unlearn(X[:1], None if learned is None else learned[:1])]
        uses += [lambda: estimator.merge(estimator)]
    for use in uses:
        with pytest.raises(
            errors.InvalidParameter, match=f"{parameter}=.* was made with {parameter}=.* fit with the rows again"
        ):
            use()
    assert estimator.n_samples_seen_ == 60
    assert estimator.set_params(**{parameter: before}).transform(X).tobytes() == z.tobytes()
    estimator.save(tmp_path / "saved")
    assert stream_dr.load(tmp_path / "saved").transform(X).tobytes() == z.tobytes()
    estimator.set_params(**{parameter: CHANGES[name]})
    if name not in ("label_aware", "alpha", "beta"):  # then the rows need targets
        estimator.fit(X, learned)
        assert estimator.transform(X).tobytes() == clone(estimator).fit(X, learned).transform(X).tobytes()


@pytest.mark.parametrize("key", KEYS)
def test_every_fixed_parameter_is_one(key: str) -> None:
    fixed = {PARAMETERS.get(name, name) for name in ESTIMATORS[key].fixed}
    assert fixed <= set(ESTIMATORS[key]().get_params())
