"""`python -m benchmarks.first_hour`: a file that is learned without a model named, beside scikit-learn's best pipeline."""

import numpy as np
import pytest

from benchmarks.first_hour import MADE, bar, documents, embeddings, main, measured, mixed_table


@pytest.mark.test_all
def test_made_sets_are_the_same_each_time() -> None:
    for made in (mixed_table, documents, embeddings):
        assert made(50).map(str).equals(made(50).map(str))
        assert not made(50).map(str).equals(made(50, seed=1).map(str))
    assert mixed_table(200).isna().any().sum() == 4
    assert documents(200)["topic"].nunique() == 8
    assert {len(vector) for vector in embeddings(20)["embedding"]} == {384}
    assert (bar(2_000), bar(20_000)) == (0.02, 0.01)


def test_the_note_of_the_table_says_nothing_of_its_channel() -> None:
    rows = mixed_table(2_000)
    shares = rows["note"].str.len().groupby(rows["channel"]).mean()
    assert np.ptp(shares) < 3
    assert rows["note"].nunique() == 2_000


@pytest.mark.test_all
@pytest.mark.filterwarnings("ignore")  # of scikit-learn's pipelines
@pytest.mark.parametrize("name", list(MADE))
def test_what_is_taken_without_a_model_named_comes_near_the_best_pipeline(name: str) -> None:
    # One fold of 400 rows: a standard error of .02 is added to the bar.
    outcome = measured(name, MADE[name](2_000), folds=1)
    assert outcome.ours > outcome.theirs - outcome.bar - 0.02, outcome


@pytest.mark.test_all
@pytest.mark.filterwarnings("ignore")
def test_it_prints_one_table(capsys: pytest.CaptureFixture[str]) -> None:
    main(["table", "wine", "--folds", "1", "--rows", "500", "600"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[:4]] == [
        ["set", "rows"],
        ["table", "500"],
        ["table", "600"],
        ["wine", "178"],
    ]
    assert lines[4].endswith("of 2 made sets within their bars of the best pipeline")
