"""y by name: after fit(frame, "target") a table may have that column or not, and no other one more."""

import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

import stream_dr
from stream_dr.errors import NotNumeric, SchemaMismatch

RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.normal(size=(60, 3)), columns=list("abc"))
Y = np.array(["u", "v", "w"] * 20)
X["a"] += 3.0 * (Y == "u")
FRAME = X.assign(target=Y)
ESTIMATORS = {
    "lda": stream_dr.LDA(2),
    "table": stream_dr.LDA(2, feature_map=stream_dr.table()),
    "neighbours": stream_dr.KNearest(),
    "regression": stream_dr.OPLS(2),
    "gain": stream_dr.InformationGain(2),
    "no labels": stream_dr.PCA(2),
    "recurrence": stream_dr.IncrementalSKM(2),
}
FORMS = {
    "pandas": lambda frame: frame,
    "polars": pl.from_pandas,
    "arrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
    "dicts": lambda frame: frame.to_dict("records"),
    "lazy": lambda frame: pl.from_pandas(frame).lazy(),
    "reader": lambda frame: pa.Table.from_pandas(frame, preserve_index=False).to_reader(),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_frame_is_taken_with_and_without_the_target(name, form, tmp_path: Path):
    if (name, form) in (("neighbours", "lazy"), ("neighbours", "reader")):
        pytest.skip("a stream is no table to KNearest")
    make = FORMS[form]
    expected = clone(ESTIMATORS[name]).fit(X, Y)
    learned = clone(ESTIMATORS[name]).fit(make(FRAME), "target")
    stream_dr.save(learned, tmp_path / "model")
    for estimator in (learned, pickle.loads(pickle.dumps(learned)), stream_dr.load(tmp_path / "model")):
        for rows in (FRAME, X):
            if hasattr(expected, "transform"):
                np.testing.assert_allclose(estimator.transform(make(rows)), expected.transform(X))
            if hasattr(expected, "predict"):
                assert estimator.predict(make(rows)).tolist() == expected.predict(X).tolist()
                assert estimator.score(make(rows), Y) == expected.score(X, Y)
    if hasattr(expected, "predict"):
        assert learned.score(make(FRAME), "target") == expected.score(X, Y)
    if hasattr(expected, "fit_transform"):
        z = clone(learned).fit_transform(FRAME, "target")
        np.testing.assert_allclose(z, expected.transform(X))


def test_no_other_column_is_dropped():
    learned = stream_dr.LDA().fit(FRAME, "target")
    with pytest.raises(NotNumeric, match="other"):
        learned.transform(X.assign(other=Y))
    with pytest.raises(SchemaMismatch, match="extra"):
        learned.transform(FRAME.assign(extra=1.0))
    with pytest.raises(ValueError, match="target"):
        learned.transform(pd.concat([FRAME, FRAME[["target"]]], axis=1))
    learned.fit(X, Y)
    with pytest.raises(NotNumeric, match=r"\['target'\] hold no numbers and were not learned; leave them out"):
        learned.transform(FRAME)
    with pytest.raises(NotNumeric, match=r"'a' .*stream_dr\.table"):
        learned.transform(X.assign(a=Y))


def test_a_learned_feature_is_not_dropped():
    learned = stream_dr.LDA(feature_map=stream_dr.table()).fit(FRAME, np.roll(Y, 1))
    with pytest.warns(stream_dr.errors.OtherColumns):
        learned.partial_fit(FRAME, "target")
    assert learned.transform(FRAME).tolist() != learned.transform(FRAME.assign(target="u")).tolist()


def test_batches_and_pipelines_take_y_by_name():
    learned = stream_dr.LDA().partial_fit(FRAME[:30], "target").partial_fit(FRAME[30:], "target")
    other = stream_dr.LDA().fit(X, Y)
    assert learned.merge(other).predict(FRAME).tolist() == other.predict(X).tolist()
    pipeline = make_pipeline(stream_dr.LDA()).fit(FRAME, "target")
    assert pipeline.score(FRAME, "target") == other.score(X, Y)
    assert clone(pipeline).fit(X, Y).predict(X).tolist() == pipeline.predict(FRAME).tolist()
