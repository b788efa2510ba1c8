"""`stream-dr suggest`: a table of methods, and a command for the best that can be pasted."""

import shlex
from pathlib import Path

import numpy as np
import pytest

from tests.test_cli import Done

RNG = np.random.default_rng(4)


def test_the_command_at_the_end_is_one_that_learns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sex, age = RNG.choice(["f", "m"], 300), RNG.integers(1, 90, 300)
    rows = [f"{s};{a if i % 5 else ''};{s}{a > 40}" for i, (s, a) in enumerate(zip(sex, age, strict=True))]
    (tmp_path / "my t.csv").write_text("\n".join(["sex;age;y", *rows]) + "\n")
    done = Done(capsys, "suggest", tmp_path / "my t.csv", "--label=y", "--delimiter", ";", "--as", "age=number")
    assert done.status == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].split()[:2] == ["method", "accuracy"]
    assert {line.split("  ")[0] for line in lines} > {"lda", "all features", "pca", "most frequent class"}
    assert lines[-2] == "5 folds of 300 rows, a sample of 300"
    program, *words = shlex.split(lines[-1])
    assert (program, words[0], words[-4:-1]) == ("stream-dr", "learn", ["--dir", "D", "--model"])
    learned = Done(capsys, *(tmp_path / "d" if word == "D" else word for word in words))
    assert learned.status == 0, learned.err
    assert "300 rows of 1 batches appended and learned" in learned.out


def test_time_holds_out_later_rows_and_is_no_option_of_the_command_to_learn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"{i % 7},{i},{'up' if (i % 7 > 3) == (i < 180) else 'down'}" for i in range(240)]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,y", *rows]) + "\n")
    command = ["suggest", tmp_path / "t.csv", "--label", "y"]
    shuffled, ordered = Done(capsys, *command), Done(capsys, *command, "--time")
    assert (shuffled.status, ordered.status) == (0, 0), ordered.err
    assert "--time" not in ordered.out.splitlines()[-1]
    first = [
        next(line.split()[1] for line in done.out.splitlines() if line.startswith("lda "))
        for done in (shuffled, ordered)
    ]
    assert first[0] != first[1]


def test_a_feature_map_in_it_is_read_as_it_was_meant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = RNG.normal(size=(400, 2))
    rows = [f"{a},{b},{'in' if a * a + b * b < 1.4 else 'out'}" for a, b in x]
    (tmp_path / "ring.csv").write_text("\n".join(["a,b,y", *rows]) + "\n")
    last = Done(capsys, "suggest", tmp_path / "ring.csv", "--label", "y").out.splitlines()[-1]
    assert "random_fourier" in last  # no line parts a ring
    words = shlex.split(last)[1:]
    assert Done(capsys, *(tmp_path / "d" if word == "D" else word for word in words)).status == 0


def test_numbers_and_labels_that_may_be_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "n.csv").write_text("\n".join(["a,b,y", *(f"{i % 7},{i},{i}.5" for i in range(200)), ""]))
    (tmp_path / "w.csv").write_text("\n".join(["a,b,y", *(f"{i % 150},{i % 150},{i % 150}" for i in range(300)), ""]))
    done = Done(capsys, "suggest", tmp_path / "n.csv", "--label", "y")
    assert (done.status, done.out.split()[1]) == (0, "R2"), done.err
    command = ["suggest", tmp_path / "w.csv", "--label", "y"]
    stopped = Done(capsys, *command)
    assert (stopped.status, stopped.out) == (2, "")
    assert f"stream-dr suggest {tmp_path / 'w.csv'} --targets y" in stopped.err
    assert Done(capsys, *command, "--as-classes").out.splitlines()[-1].startswith("stream-dr learn")
    assert Done(capsys, "suggest", tmp_path / "n.csv").err.startswith("error (invalid_targets)")


def test_what_is_no_better_than_the_most_frequent_label_is_called_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"{a},{b},{'yes' if c < 0.624 else 'no'}" for a, b, c in np.random.default_rng(1).random((800, 3))]
    (tmp_path / "noise.csv").write_text("\n".join(["a,b,y", *rows]) + "\n")
    told = "no better than the most frequent label ("
    done = Done(capsys, "suggest", tmp_path / "noise.csv", "--label", "y")
    assert (done.status, done.out.count(told), "stream-dr learn" in done.out) == (0, 7, False)
    assert (done.err.count("no method is proposed: "), "best" in done.err) == (1, False)

    d = tmp_path / "d"
    learned = Done(capsys, "learn", tmp_path / "noise.csv", "--label", "y", "--dir", d, "--model", "m=lda")
    assert f"m is {told}" in learned.all_err
    assert Done(capsys, "report", d, "-o", tmp_path / "r.html").status == 0
    page = (tmp_path / "r.html").read_text(encoding="utf8")
    assert (f"<b>m</b> is {told}" in page, "is best" in page) == (True, False)

    assert (
        Done(
            capsys, "convert", tmp_path / "noise.csv", "--label", "y", "--out", d / "s", "--rows-per-batch", 100
        ).status
        == 0
    )
    tested = Done(capsys, "evaluate", d / "s", "--model", "m=lda", "--first", 100).out.splitlines()
    assert all(told in line for line in tested[1:])
