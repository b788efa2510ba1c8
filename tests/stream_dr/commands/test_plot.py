"""`stream-dr plot` and `stream-dr report`: what they write of a directory, compared with what is projected otherwise."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from stream_dr.batch.block import Block
from stream_dr.batch.targets import class_targets, continuous_targets, multilabel_targets
from stream_dr.cli import main
from stream_dr.directory.draft import unlearn_draft
from stream_dr.directory.newest import newest_rows
from stream_dr.models.snapshot import write_snapshot_if_needed
from stream_dr.plotting.directory_figures import HOW, KINDS, OF_ALL, FigureOptions, draw_directory_figure
from stream_dr.running.advance import backfill
from stream_dr.running.query import transform
from stream_dr.uncertainty import number_text
from tests.support.batches import dense, opened, put

X = np.ones((3, 4))
SCRIPT = "<script>alert(1)</script>"


def learned(path: Path, **models: str) -> None:
    """A directory of three batches, a label of which is a script, with models published."""
    names = ("n0", "n1", "n2", "<b>bold</b>")
    with opened(path, **{name: (key, {}) for name, key in models.items()}) as directory:
        first = dense(0, names=names)
        labels = [SCRIPT if label == "a" else label for label in first.y.targets_by_row()]
        put(directory, first._replace(y=class_targets(labels)), dense(1, names=names), dense(2, names=names))
        for model in directory.models.values():
            for _, block in directory.history.events():
                model.accumulator.add(block if model.estimator.target_kinds else block._replace(y=None))
            model.position = directory.position
            model.publish(model.freeze())
            write_snapshot_if_needed(model, model.freeze(), path)


def run(*arguments: object) -> object:
    with pytest.raises(SystemExit) as ended:
        main([str(a) for a in arguments])
    return ended.value.code


def test_figures_are_of_what_is_published_and_the_newest_rows(tmp_path: Path) -> None:
    learned(tmp_path, lda="lda")
    with opened(tmp_path) as directory:
        model = directory.model("lda")
        blocks = [block for _, block in directory.history.events()]
        z = np.vstack([transform(directory.releases.served(model), block).z for block in blocks])
        labels = [label for block in blocks for label in block.y.targets_by_row()]
        shown = draw_directory_figure(directory, "projection", model, FigureOptions(rows=58))
        drawn = {t.name: t for t in shown.data if t.name != "class means"}
        assert set(drawn) == {"&lt;script&gt;alert(1)&lt;/script&gt;", "a", "b", "c"}
        at = [i for i in range(2, 60) if labels[i] == "b"]
        np.testing.assert_allclose(drawn["b"].x, z[at, 0], rtol=1e-5)
        np.testing.assert_array_equal(
            draw_directory_figure(directory, "spectrum", model).data[0].y, model.published.projection.eigenvalues
        )
        assert (
            "&lt;b&gt;bold&lt;/b&gt;"
            in draw_directory_figure(directory, "loadings", model, FigureOptions(component=9)).data[0].y
        )
        directory.append([unlearn_draft({2: None, 1: [0, 1]})])
        assert sum(len(t.x) for t in draw_directory_figure(directory, "projection", model).data[:-1]) == 20 + 18


def test_the_newest_rows_have_their_targets_whatever_batches_they_came_in(tmp_path: Path) -> None:
    with opened(tmp_path / "a") as directory:
        put(directory, dense(0), dense(1, y=None), dense(2))
        newest = newest_rows(directory, 30)
        truth = [None] * 10 + dense(2).y.targets_by_row()  # of the second batch, its last ten rows
        assert newest.targets.targets_by_row() == truth
        assert newest.project(_Same()).shape == (30, 4)
    with opened(tmp_path / "b") as directory:
        sets = [["x"], [], ["x", "y"]]
        put(directory, Block(X, multilabel_targets(sets)), Block(X), Block(X, multilabel_targets(sets)))
        assert newest_rows(directory, 9).targets.targets_by_row() == [*sets, *[None] * 3, *sets]
    with opened(tmp_path / "c") as directory:
        put(directory, Block(X, continuous_targets([1.0, 2.0, 3.0])), Block(X))
        assert newest_rows(directory, 9).targets.targets_by_row() == [[1.0], [2.0], [3.0], None, None, None]
    with opened(tmp_path / "d") as directory:
        assert newest_rows(directory, 9).blocks == ()


class _Same:
    n_components = 4

    def apply(self, X: np.ndarray) -> np.ndarray:
        return X


def test_a_report_is_one_file_with_every_figure_and_a_script_in_it_is_text(tmp_path: Path, capsys) -> None:
    learned(tmp_path / "D", lda="lda", means="class_means")
    assert run("report", tmp_path / "D", "-o", tmp_path / "r.html") == 0
    page = (tmp_path / "r.html").read_text(encoding="utf8")
    kinds = set(KINDS) - set(OF_ALL) - {"regularisation"}  # nothing was cross-validated
    assert page.count("<p class=how>") == len(OF_ALL) + 2 * len(kinds)
    assert page.count('class="plotly-graph-div"') == 2 * 3  # nothing was recorded: a line says so, and no empty box
    assert "progress: no records yet" in page
    assert "confusion: not tested yet" in page
    assert page.index("<th scope=col>accuracy") < page.index("The stream")
    assert SCRIPT not in page
    assert "<b>bold</b>" not in page
    assert "60 rows" in page
    assert not re.search('<(script|link)[^<>]*(src|href)="http', page)
    assert run("report", tmp_path / "D", "-o", tmp_path / "r.pdf") == 1
    assert "invalid_parameter" in capsys.readouterr().err


def test_a_report_has_the_curve_and_what_is_known_of_a_model_with_folds(tmp_path: Path) -> None:
    with opened(tmp_path / "D", pls=("plsda", {"n_components": "cv"}), lda=("lda", {})) as directory:
        put(directory, *(dense(seed) for seed in range(6)))
        backfill(directory, [*directory.models.values()], directory.position)
        for model in directory.models.values():
            model.publish(model.freeze())
            write_snapshot_if_needed(model, model.freeze(), directory.path)
        chosen = directory.model("pls").describe(5)["chosen"]
    assert run("report", tmp_path / "D", "-o", tmp_path / "r.html") == 0
    page = (tmp_path / "r.html").read_text(encoding="utf8")
    sentence = (
        f"n_components = {chosen['n_components']} was chosen among 4 values by cross-validation on 5 folds: "
        f"error {number_text(chosen['error'])} ± {number_text(chosen['std_error'])}. Component 1 is known to "
    )
    assert page.count("was chosen among") == page.count(sentence) == 1
    assert page.count(HOW["regularisation"]) == 1


def test_plot_writes_a_page_and_says_what_is_wrong(tmp_path: Path, capsys, monkeypatch) -> None:
    learned(tmp_path / "D", lda="lda")
    out = tmp_path / "p.html"
    assert run("plot", tmp_path / "D", "--model", "lda", "-o", out) == 0
    assert out.stat().st_size > 4_000_000  # plotly's script is in it
    monkeypatch.setitem(sys.modules, "kaleido", None)
    for said, *arguments in (
        ("is of one model", "-o", out),
        ("there is no figure 'pie'", "--kind", "pie", "-o", out),
        ("unknown_model", "--model", "pca", "-o", out),
        ("name a file in .html", "--model", "lda", "-o", tmp_path / "p.txt"),
        ("stream-dr[plot]", "--model", "lda", "-o", tmp_path / "p.png"),
    ):
        assert run("plot", tmp_path / "D", *arguments) == 1
        assert said in capsys.readouterr().err
