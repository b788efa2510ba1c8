"""`stream-dr evaluate` of tables: files of several formats as one stream, and the options of `learn` for their columns."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from tests.test_cli import Done

RNG = np.random.default_rng(5)
COLOUR = RNG.choice(["red", "blue", "green"], 3_000)
AGE = RNG.integers(1, 90, 3_000).astype(float)
Y = np.where((COLOUR == "red") | (AGE > 70), "yes", "no")
TABLE = pa.table([COLOUR, pa.array(AGE, mask=AGE < 5), Y], ["colour", "age", "y"])


def accuracy(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, float, str]:
    done = Done(capsys, "evaluate", *arguments, "--label", "y", "--model", "lda=lda", "--probes", "mean", "--json")
    assert done.status == 0, done.err
    figures = json.loads(done.out)[0]
    return figures["rows"], figures["accuracy"], done.err


def test_files_of_several_formats_are_one_stream(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pa.csv.write_csv(TABLE, tmp_path / "all.csv")
    pa.csv.write_csv(TABLE.slice(0, 2_000), tmp_path / "first.csv")
    pq.write_table(TABLE.slice(2_000), tmp_path / "rest.parquet")
    whole = accuracy(capsys, tmp_path / "all.csv")
    assert whole[1] > 0.75
    assert accuracy(capsys, tmp_path / "first.csv", tmp_path / "rest.parquet")[:2] == whole[:2]
    assert "colour  category" in whole[2]


def test_the_options_of_learn_say_what_is_made_of_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pa.csv.write_csv(TABLE, tmp_path / "a.csv")
    err = accuracy(capsys, tmp_path / "a.csv", "--hash", "colour", "--impute", "0")[2]
    assert "8 hashed" in err
    assert "filled by 0" in err
    assert "words" in accuracy(capsys, tmp_path / "a.csv", "--text", "colour")[2]
    prose = accuracy(capsys, tmp_path / "a.csv", "--text", "colour", "--drop", "age")[2]
    assert ("65,536 hashed words" in prose, "lda=lda:gamma=1" in prose) == (True, True)
    refused = Done(capsys, "evaluate", tmp_path / "a.csv", "--label", "y", "--model", "lda=lda", "--keep", "none")
    assert (refused.status, "keep names 'none'" in refused.err) == (1, True)


def test_rows_to_test_may_have_words_where_those_learned_have_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = pa.table([AGE, AGE % 7, Y], ["age", "n", "y"])
    pa.csv.write_csv(numbers.slice(0, 2_000), tmp_path / "a.csv")
    pa.csv.write_csv(pa.table([pa.array(AGE, mask=AGE < 5), AGE % 7, Y], ["age", "n", "y"]), tmp_path / "b.csv")
    rows, score, _ = accuracy(capsys, tmp_path / "a.csv", "--test", tmp_path / "b.csv")
    assert (rows, score > 0.5) == (3_000, True)


@pytest.mark.parametrize("shuffle", [[], ["--shuffle"]])
def test_rows_without_a_label_are_counted(
    shuffle: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = pa.array(Y, mask=AGE < 5)
    pa.csv.write_csv(pa.table([AGE, labels], ["age", "y"]), tmp_path / "a.csv")
    rows, _, err = accuracy(capsys, tmp_path / "a.csv", *shuffle)
    assert f"note: {labels.null_count} rows have no label, and are left out." in err
    assert rows < len(Y) - labels.null_count


def test_accuracy_of_label_sets_is_said_to_be_of_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = RNG.normal(size=(600, 2))
    rows = [f'{a},{b},"{",".join(["p"] * int(a > 0) + ["q"] * int(b > 0)) or "r"}"' for a, b in x]
    (tmp_path / "sets.csv").write_text("\n".join(["a,b,tags", *rows]) + "\n")
    options = ["--labels", "tags", "--separator", ","]
    assert (
        Done(
            capsys, "convert", tmp_path / "sets.csv", *options, "--out", tmp_path / "s", "--rows-per-batch", 100
        ).status
        == 0
    )
    lines = Done(capsys, "evaluate", tmp_path / "s", "--model", "m=opls", "--first", 100).out.splitlines()
    assert "accuracy of rows  micro F1" in lines[0]
    assert lines[0].index("accuracy of rows") + len("accuracy of rows") == lines[1].index(lines[1].split()[3]) + 6
    learned = Done(capsys, "learn", tmp_path / "sets.csv", *options, "--dir", tmp_path / "d")
    assert "of rows, by one of their labels (nearest class mean)" in learned.all_err
