"""`stream-dr learn`: any file as shards of the directory's own, learned once, whatever happens between; what it refuses."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file

import stream_dr
from stream_dr.directory.directory import Directory
from stream_dr.directory.draft import unlearn_draft
from stream_dr.errors import InvalidParameter
from stream_dr.projection import linear_part_or_none
from stream_dr.running.advance import backfill
from tests.test_cli import Done

RNG = np.random.default_rng(3)
X = RNG.normal(size=(2_500, 4))
TABLE = pa.table([*X.T, np.where(X[:, 0] > X[:, 1], "up", "down"), np.arange(2_500)], [*"abcd", "y", "n"])
PARTS = ("--label", "y", "--id", "n")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    pa.csv.write_csv(TABLE, tmp_path / "data.csv")
    return tmp_path / "data.csv"


def learned(directory: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    told: dict[str, object] = json.loads(Done(capsys, "inspect", directory, "--json").out)
    return told


def test_a_file_is_learned_projected_and_verified(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    d, out = tmp_path / "d", tmp_path / "z.parquet"
    done = Done(capsys, "learn", file, *PARTS, "--dir", d, "--model", "lda=lda", "-o", out)
    assert done.status == 0, done.err
    assert "data.csv (csv): 4 features, all numbers: a, b, c, d; class targets" in done.err
    z = pq.read_table(out)
    assert z.column("id").to_pylist() == list(range(2_500))
    expected = stream_dr.LDA().fit(X, TABLE["y"].to_pylist())
    np.testing.assert_allclose(z["z0"], expected.transform(X)[:, 0], atol=1e-9)
    again = Done(capsys, "learn", file, *PARTS, "--dir", d, "--model", "lda=lda")
    assert "0 rows of 0 batches" in again.out
    looped = Done(capsys, "learn", file, *PARTS, "--dir", d, "--loops", 3)
    assert "lda: 7500 rows" in looped.out
    file.touch()
    assert "0 rows of 0 batches" in Done(capsys, "learn", file, *PARTS, "--dir", d).out
    projected = Done(capsys, "transform", d, file, "--id", "n", "--model", "lda", "-o", tmp_path / "w.parquet")
    assert "left out: y" in projected.err
    np.testing.assert_allclose(pq.read_table(tmp_path / "w.parquet")["z0"], expected.transform(X)[:, 0], atol=1e-9)
    assert Done(capsys, "backup", d, tmp_path / "copy").status == 0
    shutil.rmtree(d)
    file.unlink()
    verified = Done(capsys, "verify", tmp_path / "copy")
    assert verified.status == 0, verified.err


def test_rows_are_projected_into_csv_and_npz(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    d, out = tmp_path / "d", tmp_path / "z.csv"
    assert Done(capsys, "learn", file, *PARTS, "--dir", d, "--model", "lda=lda", "-o", out).status == 0
    assert Done(capsys, "transform", d, file, "--id", "n", "--model", "lda", "-o", tmp_path / "z.npz").status == 0
    table = pa.csv.read_csv(out)
    assert table.column_names == ["id", "label", "z0"]
    with np.load(tmp_path / "z.npz") as arrays:
        np.testing.assert_array_equal(arrays["z"][:, 0], table["z0"])
        np.testing.assert_array_equal(arrays["id"], table["id"])


def test_gamma_is_chosen_by_folds_of_ids(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    random = np.random.default_rng(0)
    y = random.integers(0, 3, 240)
    rows = random.normal(size=(240, 20)) + 0.8 * random.normal(size=(3, 20))[y]
    person = np.arange(240) // 4
    columns = [f"c{i}" for i in range(20)]
    pa.csv.write_csv(pa.table([*rows.T, y, person], [*columns, "y", "person"]), tmp_path / "data.csv")

    spec = "lda=lda:gamma=cv,folds_by=id"
    parts = ("--label", "y", "--id", "person")
    done = Done(capsys, "learn", tmp_path / "data.csv", *parts, "--dir", tmp_path / "d", "--model", spec)
    assert done.status == 0, done.err
    assert Done(capsys, "convert", tmp_path / "data.csv", "--out", tmp_path / "s", *parts).status == 0
    done = Done(capsys, "replay", tmp_path / "s", "--dir", tmp_path / "r", "--model", spec)
    assert done.status == 0, done.err

    alone = stream_dr.LDA(gamma="cv", folds_by="id").fit(rows, y, groups=person)
    for path in (tmp_path / "d", tmp_path / "r"):
        with Directory(path, writable=False) as directory:
            model = directory.model("lda")
            assert model.describe(directory.position)["chosen"]["gamma"] == pytest.approx(alone.gamma_, rel=1e-6)
            linear = linear_part_or_none(model.published.projection)
            np.testing.assert_allclose(linear.spread.angles, alone.angles_, rtol=1e-5)


@pytest.mark.parametrize(
    ("out", "says"), [("z.txt", "name a .parquet, .arrow, .csv or .npz"), ("no/z.csv", "no folder")]
)
def test_a_file_that_cannot_be_written_is_named_before_a_row_is_read(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], out: str, says: str
) -> None:
    Done(capsys, "learn", file, *PARTS, "--dir", tmp_path / "d", "--model", "lda=lda")
    file.write_text("a,b\n1\n")
    for command in (["learn", file, "--dir", tmp_path / "e"], ["transform", tmp_path / "d", file, "--model", "lda"]):
        done = Done(capsys, *command, "-o", tmp_path / out)
        assert done.status == 1
        assert says in done.err
    assert not (tmp_path / "e").exists()


def people(path: Path, words: bool) -> Path:
    """Three rows a person; with words beside the numbers, or without."""
    colour = ["red" if i % 3 else "blue" for i in range(900)] if words else np.arange(900) % 7
    table = pa.table(
        [np.arange(900) // 3, *X[:900].T, colour, TABLE["y"][:900]], ["customer_id", *"abcd", "colour", "y"]
    )
    pa.csv.write_csv(table, path)
    return path


@pytest.mark.parametrize("words", [False, True])
@pytest.mark.parametrize("command", ["learn", pytest.param("suggest", marks=pytest.mark.test_all)])
def test_an_id_is_proposed_by_which_a_person_s_rows_are_unlearned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: bool, command: str
) -> None:
    file, d = people(tmp_path / "people.csv", words), tmp_path / "d"
    if command == "suggest":
        plan = shlex.split(Done(capsys, "suggest", file, "--label", "y").out.splitlines()[-1])[1:]
    else:
        checked = Done(capsys, "learn", file, "--label", "y", "--check")
        proposed = re.search(r"note: customer_id looks like an id. With (--id \S+)", checked.err)
        assert proposed is not None
        plan = ["learn", str(file), "--label", "y", *proposed[1].split(), "--dir", "D", "--model", "lda=lda"]
    assert Done(capsys, *(d if word == "D" else word for word in plan)).status == 0

    with Directory(d) as directory:
        (model,) = directory.models.values()
        assert "customer_id" not in (directory.schema.names or ())
        directory.append([unlearn_draft(directory.history.parse_named_removal((), [17]))])
        backfill(directory, [model], directory.position)
        assert (model.position, model.rows) == (directory.position, 897)
        with pytest.raises(InvalidParameter, match="17"):
            directory.history.parse_named_removal((), [17])


@pytest.mark.parametrize(
    ("name", "values", "found"),
    [
        ("customerId", np.arange(60) // 2, True),
        ("id", [f"u{i}" for i in range(60)], True),
        ("mail", [f"u{i}@example.org" for i in range(60)], True),
        ("country_id", np.arange(60) % 4, False),
        ("amount", np.arange(60), False),
        ("user_id", np.arange(60) / 2, False),
        ("story", [f"it was the {i}th of many days" for i in range(60)], False),
    ],
)
def test_what_looks_like_an_id(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, values: list[object], found: bool
) -> None:
    pa.csv.write_csv(pa.table([values, X[:60, 0], TABLE["y"][:60]], [name, "a", "y"]), tmp_path / "a.csv")
    done = Done(capsys, "learn", tmp_path / "a.csv", "--label", "y", "--check")
    assert (f"--id {name}" in done.err) == found
    assert (
        "looks like an id" not in Done(capsys, "learn", tmp_path / "a.csv", "--label", "y", "--id", name, "--check").err
    )


def test_a_directory_may_be_moved(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Done(capsys, "learn", file, *PARTS, "--dir", tmp_path / "d", "--model", "lda=lda:scatter=diagonal")
    (tmp_path / "d").rename(tmp_path / "e")
    assert Done(capsys, "verify", tmp_path / "e").status == 0
    assert "refined at position" in Done(capsys, "refine", tmp_path / "e", "--model", "lda").out


@pytest.mark.test_all
@pytest.mark.parametrize("point", ["manifest.rename", "source.rename", "snapshot.rename"])
def test_killed_and_repeated_it_ends_as_if_it_had_not_been(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], point: str
) -> None:
    command = ["learn", str(file), *PARTS, "--model", "lda=lda", "--dir"]
    Done(capsys, *command, tmp_path / "whole")
    killed = [sys.executable, "-m", "stream_dr", *command, str(tmp_path / "d")]
    assert subprocess.run(killed, env={**os.environ, "STREAM_DR_FAILPOINTS": f"{point}=kill"}).returncode == -9
    assert Done(capsys, *command, tmp_path / "d").status == 0
    whole, again = (learned(tmp_path / name, capsys) for name in ("whole", "d"))
    assert again["rows"] == whole["rows"] == 2_500
    assert again["models"]["lda"]["state_sha256"] == whole["models"]["lda"]["state_sha256"]  # type: ignore[index]
    assert [path.name for path in (tmp_path / "d" / "sources").iterdir()] == ["data.csv"]


def test_shards_and_files_of_other_formats_together(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pq.write_table(TABLE.slice(1), tmp_path / "more.parquet")
    Done(capsys, "convert", file, *PARTS, "--out", tmp_path / "shards")
    d = tmp_path / "d"
    done = Done(capsys, "learn", tmp_path / "shards", "--dir", d, "--model", "m=class_means")
    assert "m: 2500 rows" in done.out
    assert "m: 4999 rows" in Done(capsys, "learn", tmp_path / "more.parquet", *PARTS, "--dir", d).out
    replayed = Done(capsys, "replay", file, *PARTS, "--dir", d)
    assert "hold no shards" in replayed.err
    assert "m: 4999 rows" in replayed.out  # the bytes of its shards are those of the folder learned first


@pytest.mark.test_all
def test_check_only_tells_and_what_is_refused_makes_nothing(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    d = tmp_path / "d"
    told = Done(capsys, "learn", file, *PARTS, "--dir", d, "--model", "lda=lda", "--check")
    assert (told.status, told.out) == (0, "")
    # Types of columns are guessed from the first MiB.
    (tmp_path / "bad.csv").write_text("a,b,y\n" + f"1,2,{'u' * 100}\n" * 20_000 + "1,x,v\n")
    for arguments, code, said in [
        ([tmp_path / "bad.csv", "--label", "y"], "malformed_input", "line 20002: 'x' in column 'b'"),
        ([file, "--label", "nothing"], "schema_mismatch", "no column 'nothing'"),
        ([tmp_path / "none.csv"], "source_missing", "none.csv"),
    ]:
        done = Done(capsys, "learn", *arguments, "--dir", d, "--model", "lda=lda")
        assert (done.status, done.out) == (1, ""), done.err
        assert f"error ({code})" in done.err
        assert said in done.err
        assert not d.exists()


def test_a_file_that_changed_is_not_learned_twice(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["learn", file, *PARTS, "--dir", tmp_path / "d", "--model", "m=class_means"]
    Done(capsys, *command)
    with file.open("a") as grown:
        grown.write("1,2,3,4,up,2500\n")
    refused = Done(capsys, *command)
    assert (refused.status, "error (output_exists)" in refused.err, "--name" in refused.err) == (1, True, True)
    assert "m: 5001 rows" in Done(capsys, *command, "--name", "new").out
    assert learned(tmp_path / "d", capsys)["rows"] == 5_001


def test_a_table_of_words_gaps_and_dates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sex, age = RNG.choice(["f", "m"], 1_500), RNG.integers(1, 90, 1_500)
    alive = np.where((sex == "f") | (age < 10), "yes", "no")
    rows = [
        f"P{i},{s},{a if i % 5 else ''},2020-01-{1 + i % 28:02d},{y}"
        for i, (s, a, y) in enumerate(zip(sex, age, alive, strict=True))
    ]
    (tmp_path / "t.csv").write_text("\n".join(["pid,sex,age,day,alive", *rows]) + "\n")
    command = ["learn", tmp_path / "t.csv", "--label", "alive", "--dir", tmp_path / "d", "--model", "lda=lda"]
    wrong = Done(capsys, *command, "--keep", "nix", "--one-hot", "nope")
    assert (wrong.status, "'nix'" in wrong.err, "'nope'" in wrong.err, (tmp_path / "d").exists()) == (
        1,
        True,
        True,
        False,
    )
    (tmp_path / "u.csv").write_text("id,a,y\n1,2,u\n")
    named = Done(capsys, "learn", tmp_path / "u.csv", "--label", "y", "--dir", tmp_path / "d", "--model", "lda=lda")
    assert (named.status, "--id id" in named.err) == (1, True)
    done = Done(capsys, *command, "--as", "age=number", "-o", tmp_path / "z.parquet")
    assert done.status == 0, done.err
    told = {line.split()[0]: line for line in done.err.splitlines() if line}
    assert "left out" in told["pid"]
    assert "--keep pid" in told["pid"]
    assert "--hash sex" in told["sex"]
    assert "missing (filled by the mean)" in told["age"]
    z = pq.read_table(tmp_path / "z.parquet").to_pandas()
    assert abs(z.groupby("label")["z0"].mean().diff().iloc[1]) > 1
    assert "0 rows of 0 batches" in Done(capsys, *command, "--as", "age=number").out
    assert Done(capsys, "verify", tmp_path / "d").status == 0
    again = Done(
        capsys,
        "transform",
        tmp_path / "d",
        tmp_path / "t.csv",
        "--label",
        "alive",
        "--model",
        "lda",
        "-o",
        tmp_path / "w.arrow",
    )
    assert again.status == 0, again.err
    assert pa.ipc.open_file(tmp_path / "w.arrow").read_all()["z0"].equals(pq.read_table(tmp_path / "z.parquet")["z0"])


def test_columns_that_a_later_file_does_not_have_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"{'fm'[i % 2]},{i % 50},{'yn'[i % 3 == 0]}" for i in range(60)]
    (tmp_path / "a.csv").write_text("\n".join(["sex,age,y", *lines, ""]))
    (tmp_path / "b.csv").write_text("\n".join(["sex,y", *(f"{'fm'[i % 2]},{'yn'[i % 2]}" for i in range(40)), ""]))
    into = ["--label", "y", "--dir", tmp_path / "d"]
    first = Done(capsys, "learn", tmp_path / "a.csv", *into, "--model", "lda=lda:gamma=1.0")
    assert (first.status, "missing:" in first.err) == (0, False), first.err
    assert "are taken as missing: age" in Done(capsys, "learn", tmp_path / "b.csv", *into).err
    projected = Done(
        capsys, "transform", tmp_path / "d", tmp_path / "b.csv", "--model", "lda", "-o", tmp_path / "z.parquet"
    )
    assert "left out: y" in projected.err
    assert "are taken as missing: age" in projected.err


def test_without_a_model_named_it_takes_lda_and_says_so(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = Done(capsys, "learn", file, *PARTS, "--dir", tmp_path / "d")
    assert (done.status, "--model lda=lda is taken" in done.err, "refined" in done.out) == (0, True, False), done.err
    assert "lda: 2500 rows" in done.out
    assert "is taken" not in Done(capsys, "learn", file, *PARTS, "--dir", tmp_path / "d").err  # it has one now


def test_without_a_label_it_takes_pca(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    numbers = Done(capsys, "learn", file, "--drop", "y", "--dir", tmp_path / "d", "-o", tmp_path / "z.csv")
    assert (numbers.status, "--model pca=pca is taken" in numbers.err, "--label" in numbers.err) == (0, True, True)
    expected = stream_dr.PCA().fit(np.column_stack([X, np.arange(2_500)]))
    z = np.abs(pa.csv.read_csv(tmp_path / "z.csv")["z1"].to_numpy())
    np.testing.assert_allclose(z, np.abs(expected.transform(np.column_stack([X, np.arange(2_500)]))[:, 1]), atol=1e-6)


@pytest.mark.test_all
@pytest.mark.parametrize("kind", ["text", "sparse"])
def test_pca_of_texts_and_sparse_rows_is_refined(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, d, out = tmp_path / "rows.npz", tmp_path / "d", tmp_path / "z.parquet"
    sparse = sp.random(200, 5_000, 0.01, "csr", random_state=0)
    if kind == "text":
        rows = tmp_path / "rows.csv"
        words = [" ".join(f"w{word}" for word in RNG.integers(0, 60, 8)) for _ in range(200)]
        rows.write_text("\n".join(["t", *(f"{text} thing no {i}" for i, text in enumerate(words)), ""]))
    else:
        sp.save_npz(rows, sparse)
    done = Done(capsys, "learn", rows, "--dir", d, "-o", out)
    assert (done.status, "--model pca=pca:n_components=10 is taken" in done.err) == (0, True), done.err
    assert "a random tenth" not in done.err  # there is nothing that it could predict
    assert learned(d, capsys)["models"]["pca"]["solution"] == "refined"  # type: ignore[index]
    if kind == "sparse":
        X = sparse.toarray()
        largest = np.linalg.svd(X - X.mean(axis=0), compute_uv=False)[:5]
        z = pq.read_table(out)
        np.testing.assert_allclose([np.linalg.norm(z[f"z{i}"]) for i in range(5)], largest, rtol=1e-3)


def write_wide(path: Path, X: np.ndarray, y: np.ndarray) -> None:
    """Write rows as the last of 5,000 columns, of which one pass keeps the diagonal only."""
    dump_svmlight_file(sp.hstack([sp.csr_matrix((len(X), 5_000 - X.shape[1])), X], "csr"), y, str(path))


@pytest.mark.parametrize("helps", [True, pytest.param(False, marks=pytest.mark.test_all)])
def test_a_solution_from_the_diagonal_is_refined_only_where_that_helps(
    helps: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng, y = np.random.default_rng(11), np.arange(600) // 7 % 2
    if helps:  # each column alone hides y, their difference shows it
        shared = 10 * rng.normal(size=(600, 1))
        X = np.hstack([shared, shared + y[:, None]]) + rng.normal(0, 0.1, (600, 2))
    else:  # nearly as many columns as rows, so what goes together in them is chance
        X = rng.normal(size=(600, 500)) + 0.1 * y[:, None]
    file, d = tmp_path / "rows.svm", tmp_path / "d"
    write_wide(file, X, y)
    first = Done(capsys, "learn", file, "--dir", d, "--model", "lda=lda:gamma=0.001")
    assert (first.status, "a random tenth" in first.err) == (0, False), first.err

    done = Done(capsys, "learn", file, "--dir", d)
    assert done.status == 0, done.err
    before, after = map(float, re.findall(r"\d\.\d{3}", done.err.split("with a score of")[1])[:2])
    asks = np.random.default_rng(0).random(600) < 0.1
    learns = ~asks
    exact = stream_dr.LDA(gamma=0.001).fit(X[learns], y[learns]).score(X[asks], y[asks])
    diagonal = stream_dr.LDA(gamma=0.001, scatter="diagonal").fit(X[learns], y[learns]).score(X[asks], y[asks])
    assert (before, after > before) == (round(diagonal, 3), helps), done.err
    np.testing.assert_allclose(after, exact, atol=0.05)  # of 60 rows, after at most 20 passes
    assert ("The model is refined" in done.err, "stays as it is" in done.err) == (helps, not helps)
    assert learned(d, capsys)["models"]["lda"]["solution"] == ("refined" if helps else "diagonal")  # type: ignore[index]


@pytest.mark.test_all
def test_a_refined_solution_is_compared_again_when_rows_come(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(12)
    d = tmp_path / "d"

    def write(name: str, rows: int, noise: float, weak: float, difference: float) -> None:
        y, shared = np.arange(rows) // 7 % 2, 10 * rng.normal(size=(rows, 1))
        pair = np.hstack([shared, shared + difference * y[:, None]]) + rng.normal(0, 0.1, (rows, 2))
        write_wide(tmp_path / name, np.hstack([noise * rng.normal(size=(rows, 600)) + weak * y[:, None], pair]), y)

    write("a.svm", 60, 0.01, 0.0, 1.0)  # the pair alone shows y
    write("b.svm", 600, 1.0, 0.15, -0.2)  # the pair says the opposite in most rows, and each other column a little
    assert "The model is refined" in Done(capsys, "learn", tmp_path / "a.svm", "--dir", d).err
    assert "a random tenth" not in Done(capsys, "learn", tmp_path / "a.svm", "--dir", d).err  # no row has come

    more = Done(capsys, "learn", tmp_path / "b.svm", "--dir", d)
    assert "stays as it is" in more.err, more.err
    with Directory(d) as directory:
        model = directory.model("lda")
        assert (model.published.projection.solution, model.stale_rows) == ("diagonal", 0)
    assert learned(d, capsys)["models"]["lda"]["solution"] == "diagonal"  # type: ignore[index]


def test_what_was_refined_projects_the_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = ["y,t", *(f"{'ab'[i % 2]},the {'red' if i % 2 else 'blue'} thing no {i} of many" for i in range(60))]
    rng, y = np.random.default_rng(11), np.arange(90) % 2
    shared = 10 * rng.normal(size=(90, 1))
    write_wide(tmp_path / "s.svm", np.hstack([shared, shared + y[:, None]]) + rng.normal(0, 0.1, (90, 2)), y)
    (tmp_path / "t.csv").write_text("\n".join(rows) + "\n")
    z = tmp_path / "z.parquet"
    done = Done(capsys, "learn", tmp_path / "s.svm", "--dir", tmp_path / "d", "-o", z)
    assert (done.status, "lda=lda:gamma=1.0 is taken" in done.err) == (0, True), done.err
    lines = done.out.splitlines()
    assert [line.split()[1] for line in lines[-2:]] == ["refined", "rows"]
    assert json.loads(Done(capsys, "inspect", tmp_path / "d", "--json").out)["models"]["lda"]["solution"] == "refined"
    again = Done(
        capsys, "transform", tmp_path / "d", tmp_path / "s.svm", "--model", "lda", "-o", tmp_path / "w.parquet"
    )
    assert again.status == 0, again.err
    assert pq.read_table(tmp_path / "w.parquet")["z0"].equals(pq.read_table(z)["z0"])
    texts = Done(capsys, "learn", tmp_path / "t.csv", "--label", "y", "--dir", tmp_path / "e")
    assert (texts.status, "lda=lda:gamma=1.0 is taken" in texts.err) == (0, True), texts.err
    assert "65,536 hashed words" in texts.err
    asked = Done(capsys, "learn", tmp_path / "s.svm", "--dir", tmp_path / "f", "--model", "m=lda:scatter=diagonal")
    assert "refined" not in asked.out + Done(capsys, "learn", tmp_path / "s.svm", "--dir", tmp_path / "f").out


def test_prose_alone_is_a_text_and_prose_beside_other_columns_a_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"k{i},{'ab'[i % 2]},the {'red' if i % 2 else 'blue'} thing no {i},{'' if i % 9 else i}" for i in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["key,y,t,n", *rows]) + "\n")

    def learned(dir: str, *options: str) -> tuple[dict[str, Any], str]:
        done = Done(capsys, "learn", tmp_path / "t.csv", "--label", "y", "--dir", tmp_path / dir, *options)
        assert done.status == 0, done.err
        return json.loads(Done(capsys, "inspect", tmp_path / dir, "--json").out)["models"]["m"]["params"], done.err

    alone, told = learned("a", "--drop", "n", "--model", "m=lda")
    assert alone == {"feature_map": {"map": "text", "column": "t"}, "gamma": 1.0}
    assert "--model m=lda:gamma=1.0" in told
    assert learned("b", "--model", "m=lda")[0] == {"feature_map": {"map": "table"}, "gamma": 20.0}
    named = learned("c", "--drop", "n", "--model", "m=lda:feature_map=table,shrinkage=0.1")[0]
    assert named == {"feature_map": {"map": "table"}, "shrinkage": 0.1}


def test_days_are_dates_in_json_lines_as_in_csv(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    days = [None if i % 7 == 0 else f"2024-{1 + i % 12:02}-{1 + i % 28:02}" for i in range(60)]
    times = [f"2024-02-29T{i % 24:02}:30:00" for i in range(60)]
    rows = [{"d": d, "t": t, "y": "ab"[i % 2]} for i, (d, t) in enumerate(zip(days, times, strict=True))]
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "r.csv").write_text("d,t,y\n" + "".join(f"{r['d'] or ''},{r['t']},{r['y']}\n" for r in rows))

    def columns(file: str, *options: str) -> list[list[str]]:
        done = Done(capsys, "learn", tmp_path / file, "--label", "y", "--check", *options)
        return [line.split()[:2] for line in done.err.splitlines()[2:4]]

    assert columns("r.jsonl") == columns("r.csv") == [["d", "date"], ["t", "time"]]
    assert columns("r.jsonl", "--as", "d=time")[0] == ["d", "time"]
    line = json.dumps({"d": "2024-02-29T10:30:00", "t": times[0], "y": "a"}) + "\n"
    with (tmp_path / "r.jsonl").open("a") as file:
        # Types of columns are guessed from the first MiB, which the spaces fill.
        file.write((json.dumps(rows[1]) + " " * 1_000 + "\n") * 2_000 + line)
    late = Done(capsys, "learn", tmp_path / "r.jsonl", "--label", "y", "--dir", tmp_path / "d")
    assert (late.status, "row 2060: column 'd'" in late.err, "--as d=time" in late.err) == (1, True, True), late.err
    as_times = Done(capsys, "learn", tmp_path / "r.jsonl", "--label", "y", "--dir", tmp_path / "d", "--as", "d=time")
    assert as_times.status == 0, as_times.err


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_numbers_with_a_fraction_are_predicted(suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, path = TABLE.set_column(4, "y", pa.array(X[:, 0] + 0.5)).drop("n").slice(0, 300), tmp_path / f"t.{suffix}"
    if suffix == "csv":
        pa.csv.write_csv(table, path)
    elif suffix == "parquet":
        pq.write_table(table, path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    done = Done(capsys, "learn", path, "--label", "y", "--dir", tmp_path / "d")
    assert (done.status, "--targets y" in done.err, "opls=opls is taken" in done.err) == (0, True, True), done.err
    assert "opls: 300 rows" in done.out


def test_labels_that_look_like_numbers_or_ids_stop_before_anything_is_learned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "n.csv").write_text("\n".join(["a,y", *(f"{i % 7},{i % 150}" for i in range(600)), ""]))
    (tmp_path / "i.csv").write_text("\n".join(["a,y", *(f"{i % 7},k{i}" for i in range(600)), ""]))
    (tmp_path / "few.csv").write_text("\n".join(["a,y", *(f"{i % 7},{i % 100}" for i in range(600)), ""]))
    d = tmp_path / "d"
    for name, other in (("n.csv", "--targets y"), ("i.csv", "--id y")):
        command = ["learn", tmp_path / name, "--label", "y", "--dir", d]
        stopped = Done(capsys, *command)
        assert (stopped.status, stopped.out, d.exists()) == (2, "", False)
        assert other in stopped.err
        assert f"--dir {d} --as-classes" in stopped.err
    assert Done(capsys, "learn", tmp_path / "n.csv", "--targets", "y", "--dir", d).status == 0
    assert "lda: 600 rows" in Done(capsys, *command[:-1], tmp_path / "e", "--as-classes").out
    assert Done(capsys, "learn", tmp_path / "few.csv", "--label", "y", "--dir", tmp_path / "f").status == 0


@pytest.mark.parametrize("columns", ["t", "n,t"])
def test_shards_of_a_table_get_the_model_of_its_file(
    columns: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        f"{'ab'[i % 2]},{f'{i / 7},' if ',' in columns else ''}a {'red' if i % 2 else 'blue'} thing no {i}"
        for i in range(60)
    ]
    (tmp_path / "f.csv").write_text("\n".join([f"y,{columns}", *rows]) + "\n")
    models = []
    for dir, source in (("a", ["f.csv", "--label", "y"]), ("b", ["a/sources/f.csv"])):
        done = Done(capsys, "learn", tmp_path / source[0], *source[1:], "--dir", tmp_path / dir)
        assert done.status == 0, done.err
        models.append(json.loads(Done(capsys, "inspect", tmp_path / dir, "--json").out)["models"]["lda"])
    assert models[0]["params"]["feature_map"]
    assert models[0]["params"] == models[1]["params"]
    np.testing.assert_allclose(models[1]["eigenvalues"], models[0]["eigenvalues"], rtol=1e-9)


def test_a_model_without_a_component_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for labels, said in (("a", True), ("ab", False)):
        rows = [f"{i % 7},{i % 5},{labels[i % len(labels)]}" for i in range(30)]
        (tmp_path / f"{labels}.csv").write_text("\n".join(["p,q,y", *rows]) + "\n")
        done = Done(capsys, "learn", tmp_path / f"{labels}.csv", "--label", "y", "--dir", tmp_path / f"{labels}.d")
        assert (done.status, "lda has no component yet: there are at most as many as classes" in done.err) == (0, said)
        out = tmp_path / f"{labels}.out.csv"
        asked = Done(
            capsys, "transform", tmp_path / f"{labels}.d", tmp_path / f"{labels}.csv", "--model", "lda", "-o", out
        )
        assert (asked.status, "Nothing was written" in asked.err, out.exists()) == (int(said), said, not said)


def test_a_folder_of_files_is_read_with_every_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "spark"
    folder.mkdir()
    for number in range(2):
        pq.write_table(TABLE.slice(100 * number, 100), folder / f"part-{number:05d}.snappy.parquet")
    (folder / "_SUCCESS").touch()
    done = Done(capsys, "learn", folder, "--label", "y", "--drop", "d,n", "--dir", tmp_path / "d")
    assert done.status == 0, done.err
    assert "--model lda=lda is taken" in done.err
    with Directory(tmp_path / "d", writable=False) as directory:
        schema = directory.schema
        assert (directory.rows, schema.names, schema.target_kind) == (200, ("a", "b", "c"), "class")

    out = tmp_path / "z.csv"
    done = Done(capsys, "transform", tmp_path / "d", folder, "--model", "lda", "--out", out, "--drop", "y,d,n")
    assert done.status == 0, done.err
    assert len(out.read_text().splitlines()) == 201


def test_files_of_equal_bytes_count_once_and_that_is_told(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = Path(shutil.copy(file, tmp_path / "copy.csv"))
    done = Done(capsys, "learn", file, copy, *PARTS, "--dir", tmp_path / "d")
    assert re.search(r"copy\.csv\S* has the same bytes as \S*data\.csv\S*, and counts once", done.err)
    assert learned(tmp_path / "d", capsys)["rows"] == 2_500


def test_a_word_among_numbers_is_named_and_can_be_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a,b,y\n" + "".join(f"{i % 40},{i},{'uv'[i % 2]}\n" for i in range(95)) + "?,1,u\n" * 5)
    done = Done(capsys, "learn", path, "--label", "y", "--check")
    assert re.search(r"a +category .* 95 % numbers and the word '\?': --missing '\?'", done.err)
    done = Done(capsys, "learn", path, "--label", "y", "--check", "--missing", "?")
    assert re.search(r"a +number +number \+ missing", done.err)


def test_rows_without_a_label_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = ["up", "NA", "down", "", "up", "null"] * 10
    rows = [f"{i},{i % 7},{label}" for i, label in enumerate(labels)]
    (tmp_path / "a.csv").write_text("\n".join(["a,b,y", *rows, ""]))
    done = Done(capsys, "learn", tmp_path / "a.csv", "--label", "y", "--dir", tmp_path / "d", "--model", "lda=lda")
    assert (done.status, "lda: 30 rows" in done.out) == (0, True), done.err
    assert "note: lda did not learn 30 rows that have no label." in done.err


def test_several_labels_in_one_column(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"{i},{i % 7},{'new|sale' if i % 3 else 'sale'}" for i in range(60)]
    (tmp_path / "a.csv").write_text("\n".join(["a,b,tags", *rows, ""]))
    parts = ("--labels", "tags", "--separator", "|", "--dir", tmp_path / "d", "--model", "opls=opls")
    done = Done(capsys, "learn", tmp_path / "a.csv", *parts)
    assert (done.status, "multilabel targets" in done.err) == (0, True), done.err
