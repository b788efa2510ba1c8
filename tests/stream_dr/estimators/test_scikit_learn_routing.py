"""What scikit-learn reads of an estimator beside its methods: tags, and where it passes groups."""

from collections.abc import Iterator

import numpy as np
import pytest
import sklearn
from sklearn.datasets import load_iris
from sklearn.model_selection import GroupKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.utils import get_tags

from stream_dr import LDA, PCA, hashing, table

X, Y = load_iris(return_X_y=True)
GROUPS = np.arange(150) % 10


@pytest.fixture
def _routing() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.mark.usefixtures("_routing")
def test_groups_go_to_the_splitter_alone_unless_asked_for() -> None:
    splitter = GroupKFold(5)
    for estimator in (LDA(), make_pipeline(PCA(n_components=3), LDA())):
        result = cross_validate(estimator, X, Y, cv=splitter, params={"groups": GROUPS})
        assert result["test_score"].min() > 0.8

    asked = cross_validate(
        LDA(folds=3).set_fit_request(groups=True), X, Y, cv=splitter, params={"groups": GROUPS}, error_score="raise"
    )
    assert asked["test_score"].min() > 0.8
    with pytest.raises(ValueError, match="does not store rows in folds"):
        cross_validate(
            LDA().set_fit_request(groups=True), X, Y, cv=splitter, params={"groups": GROUPS}, error_score="raise"
        )


def test_tags_follow_the_feature_map() -> None:
    for estimator, expected in ((LDA(), (True, False)), (LDA(feature_map=hashing(8)), (True, False))):
        tags = get_tags(estimator).input_tags
        assert (tags.sparse, tags.allow_nan) == expected
    tags = get_tags(LDA(feature_map=table())).input_tags
    assert (tags.sparse, tags.allow_nan, tags.categorical, tags.string) == (False, True, True, True)
    rows = X.copy()
    rows[::7, 1] = np.nan
    assert LDA(feature_map=table()).fit(rows, Y).score(rows, Y) > 0.9
