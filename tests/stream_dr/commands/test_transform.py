"""`stream-dr transform`: the only model needs no name, and rows with what was never seen are counted."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.test_cli import Done


@pytest.fixture
def d(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    rows = [
        f"{'yn'[i % 2]},{'good' if i % 2 else 'bad'} thing no {i} of many,{'red' if i % 3 else 'blue'}"
        for i in range(90)
    ]
    (tmp_path / "t.csv").write_text("\n".join(["y,t,colour", *rows]) + "\n")
    learned = Done(capsys, "learn", tmp_path / "t.csv", "--label", "y", "--dir", tmp_path / "d", "--text", "t")
    assert learned.status == 0, learned.err
    return tmp_path / "d"


def test_the_only_model_needs_no_name(d: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["transform", d, tmp_path / "t.csv", "-o"]
    for name, option in (("a", []), ("b", ["--model", "lda"])):
        done = Done(capsys, *command, tmp_path / f"{name}.parquet", "--label", "y", *option)
        assert (done.status, done.err) == (0, ""), done.err
    assert pq.read_table(tmp_path / "a.parquet").equals(pq.read_table(tmp_path / "b.parquet"))
    assert Done(capsys, "learn", tmp_path / "t.csv", "--label", "y", "--dir", d, "--model", "p=class_means").status == 0
    several = Done(capsys, *command, tmp_path / "c.parquet")
    assert (several.status, "no model is named; name one of: lda, p." in several.err) == (1, True), several.err


def test_rows_with_a_category_or_word_never_seen_are_counted(
    d: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = ["good thing,red", "a zebra and elephants,green", ",blue", "bad thing,green", "good zebra,", "many,red"]
    (tmp_path / "new.csv").write_text("\n".join(["t,colour", *rows]) + "\n")
    done = Done(capsys, "transform", d, tmp_path / "new.csv", "-o", tmp_path / "z.csv")
    assert (done.status, done.out) == (0, f"6 rows written to {tmp_path / 'z.csv'}\n")
    assert "note: 3 of 6 rows have a category, word or column that was never seen" in done.err


def test_numbered_words_never_seen_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.svm").write_text("".join(f"{i % 2} {1 + i % 2}:1 {3 + i % 5}:1\n" for i in range(60)))
    (tmp_path / "b.svm").write_text("0 1:1 9:1 11:2\n1 2:1\n\n1 8:1\n")
    d = tmp_path / "d"
    assert Done(capsys, "learn", tmp_path / "a.svm", "--dir", d, "--model", "m=lda:gamma=1").status == 0
    done = Done(capsys, "transform", d, tmp_path / "b.svm", "-o", tmp_path / "z.csv")
    assert (done.status, "note: 2 of 3 rows have" in done.err) == (0, True), done.err
