"""stream_dr.fit learns what estimators' fit does, from files, shards and streams; an error leaves the estimator alone."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import stream_dr
from stream_dr.batch.targets import class_targets
from stream_dr.errors import InvalidParameter, MalformedInput
from stream_dr.shards.dataset import ShardWriter

RNG = np.random.default_rng(5)
X = RNG.normal(size=(2_300, 3))
Y = np.where(X[:, 0] > X[:, 1], "up", "down")
FRAME = pl.DataFrame({**{name: X[:, i] for i, name in enumerate("abc")}, "y": Y})


def test_every_source_gives_what_fit_does(tmp_path: Path) -> None:
    FRAME[:1_000].write_csv(tmp_path / "a.csv")
    FRAME[1_000:].write_csv(tmp_path / "b.csv")
    FRAME.write_parquet(tmp_path / "all.parquet")
    with ShardWriter(tmp_path / "shards") as writer:
        writer.write(stream_dr.Block(X, class_targets(Y), names=("a", "b", "c")))
    expected = stream_dr.LDA().fit(X, Y).components_
    for source, label in [
        ([tmp_path / "a.csv", tmp_path / "b.csv"], "y"),
        (str(tmp_path / "all.parquet"), "y"),
        (tmp_path / "shards", None),
        (FRAME.lazy(), "y"),
        (FRAME, "y"),
        (stream_dr.open_source(tmp_path / "all.parquet", label="y"), None),
    ]:
        lda = stream_dr.LDA()
        assert stream_dr.fit(lda, source, label=label) is lda
        assert lda.feature_names_in_.tolist() == ["a", "b", "c"]
        np.testing.assert_allclose(lda.components_, expected, atol=1e-8)


def test_a_table_of_words_is_learned_through_a_map(tmp_path: Path) -> None:
    FRAME.with_columns(pl.when(pl.col("a") > 0).then(pl.lit("red")).otherwise(pl.lit("blue")).alias("a")).write_csv(
        tmp_path / "t.csv"
    )
    lda = stream_dr.fit(stream_dr.LDA(feature_map=stream_dr.table()), tmp_path / "t.csv", label="y")
    assert "a=red" in lda.get_feature_names_out().tolist() or lda.n_samples_seen_ == 2_300


@pytest.mark.test_all
def test_an_error_leaves_the_estimator_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("a,b,y\n" + "1,2,u\n3,4,v\n" * 80_000 + "1,x,u\n")
    lda = stream_dr.LDA().fit(X, Y)
    before = lda.components_
    with pytest.raises(MalformedInput, match=r"bad\.csv, line 160002"):
        stream_dr.fit(lda, tmp_path / "bad.csv", label="y")
    np.testing.assert_array_equal(lda.components_, before)
    with pytest.raises(InvalidParameter, match="source is none"):
        stream_dr.fit(lda, FRAME, label="y", delimiter=";")
