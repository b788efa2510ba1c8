"""`python -m benchmarks.first_hour`: a file that is learned without a model named, beside scikit-learn's best of five."""

import pytest

from benchmarks.first_hour import BAR, documents, embeddings, main, measured, mixed_table, sets


def test_made_sets_are_the_same_each_time() -> None:
    for made in (mixed_table, documents, embeddings):
        assert made(50).map(str).equals(made(50).map(str))
        assert not made(50).map(str).equals(made(50, seed=1).map(str))
    assert mixed_table(200).isna().any().sum() == 4
    assert documents(200)["topic"].nunique() == 8
    assert {len(vector) for vector in embeddings(20)["embedding"]} == {384}


@pytest.mark.test_all
@pytest.mark.filterwarnings("ignore")  # of scikit-learn's pipelines
@pytest.mark.parametrize("name", ["table csv", "table parquet", "documents", "embeddings"])
def test_what_is_taken_without_a_model_named_comes_near_the_best_pipeline(name: str) -> None:
    outcome = measured(name, sets()[name](), folds=1)
    assert outcome.ours >= outcome.theirs - BAR, outcome


@pytest.mark.test_all
@pytest.mark.filterwarnings("ignore")
def test_it_prints_one_table(capsys: pytest.CaptureFixture[str]) -> None:
    main(["table csv", "wine", "--folds", "1", "--rows", "500"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines[:3]] == ["set", "table csv", "wine"]
    assert lines[3].endswith("of 1 made sets within 0.01 of the best pipeline")
