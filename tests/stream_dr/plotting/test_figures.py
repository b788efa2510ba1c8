"""What is in the figures, compared with numbers found otherwise."""

import html
import json

import numpy as np
import pytest
from scipy import stats
from sklearn.datasets import load_digits, load_wine
from sklearn.decomposition import PCA

import stream_dr
from stream_dr import plotting
from stream_dr.plotting.figure import COLOURS
from stream_dr.plotting.record_figures import accuracy_figure_dict, best_models, confusion_figure_dict
from tests.support.batches import opened

X, y = load_wine(return_X_y=True)
lda = stream_dr.LDA(n_components=2).fit(X, y)
DIGITS = load_digits(return_X_y=True)
cross_validated = stream_dr.LDA(gamma="cv").fit(DIGITS[0][:350], DIGITS[1][:350])
MARKUP = "<b>a</b> & <a href='x'>"


def test_the_projection_holds_every_row_by_its_label_and_the_class_means() -> None:
    shown = plotting.projection(lda, X, y)
    z = lda.transform(X)
    *classes, means = shown.data
    assert [trace.name for trace in classes] == ["0", "1", "2"]
    for label, trace in enumerate(classes):
        np.testing.assert_allclose(np.stack([trace.x, trace.y], axis=1), z[y == label], rtol=1e-5)
        np.testing.assert_allclose([means.x[label], means.y[label]], z[y == label].mean(axis=0), rtol=1e-4)
        assert trace.marker.color == means.marker.color[label] == COLOURS[label]
    assert "178 rows" in shown.layout.title.text


def test_three_dimensions_one_component_and_no_targets() -> None:
    pca = stream_dr.PCA(n_components=3).fit(X)
    (trace,) = plotting.projection(pca, X, dimensions=3).data
    assert trace.type == "scatter3d"
    np.testing.assert_allclose(trace.z, pca.transform(X)[:, 2], rtol=1e-4, atol=1e-3)
    one = plotting.projection(stream_dr.LDA(n_components=1).fit(X, y), X, y)
    assert {trace.type for trace in one.data} == {"histogram"}
    assert sum(len(trace.x) for trace in one.data) == len(X)
    with pytest.raises(stream_dr.errors.InvalidParameter, match="dimensions"):
        plotting.projection(pca, X, dimensions=4)


def test_continuous_targets_are_a_scale_and_several_labels_their_first() -> None:
    pls = stream_dr.PLSDA(n_components=2).fit(X, X[:, 0])
    (trace,) = plotting.projection(pls, X, X[:, 0]).data
    np.testing.assert_array_equal(trace.marker.color, X[:, 0])
    sets = [(["b", "a"], ["c"], ["a"])[i % 3] for i in range(len(X))]
    shown = plotting.projection(stream_dr.OPLS().fit(X, sets), X, sets)
    assert sum(len(trace.x) for trace in shown.data[:-1]) == len(X)


def test_past_so_many_rows_a_sample_is_drawn_and_told_while_the_means_are_of_all() -> None:
    shown = plotting.projection(lda, X, y, most=50)
    assert sum(len(trace.x) for trace in shown.data[:-1]) == 50
    assert "50 of 178 rows" in shown.layout.title.text
    np.testing.assert_allclose(shown.data[-1].x, [lda.transform(X[y == c])[:, 0].mean() for c in range(3)], rtol=1e-4)
    rows = np.repeat(X, 600, axis=0)
    many = plotting.projection(lda, rows, np.repeat(y, 600))
    assert sum(len(trace.x) for trace in many.data[:-1]) == 100_000
    assert {trace.type for trace in many.data} == {"scattergl"}  # the means, too: SVG is below WebGL


def test_past_thirty_labels_the_others_share_a_colour() -> None:
    labels = np.arange(len(X)) % 40
    shown = plotting.projection(stream_dr.PCA(n_components=2).fit(X), X, labels)
    assert shown.data[30].name == "10 other labels"
    assert sum(len(trace.x) for trace in shown.data[:31]) == len(X)


def test_the_spectrum_holds_eigenvalues_and_their_captured_share() -> None:
    data = DIGITS[0]
    bars, line = plotting.spectrum(stream_dr.PCA(n_components=5).fit(data)).data
    sklearn = PCA(5).fit(data)
    np.testing.assert_allclose(bars.y / (len(data) - 1), sklearn.explained_variance_)
    np.testing.assert_allclose(line.y, np.cumsum(sklearn.explained_variance_ratio_), rtol=1e-8)


def test_loadings_are_the_largest_by_name_with_their_signs() -> None:
    names = [f"n{i}" for i in range(13)]
    (bars,) = plotting.loadings(lda, 1, most=4, names=names).data
    largest = np.argsort(-np.abs(lda.components_[1]))[:4]
    assert [*bars.y][::-1] == [names[i] for i in largest]
    np.testing.assert_array_equal(bars.x[::-1], lda.components_[1][largest])
    with pytest.raises(stream_dr.errors.InvalidParameter, match="component=2"):
        plotting.loadings(lda, 2)
    chosen = stream_dr.InformationGain(n_components=3).fit(X, y)
    assert len(plotting.loadings(chosen).data[0].x) == 3
    rows = [{"size": i % 5, "colour": "red" if i % 2 else None} for i in range(20)]
    table = stream_dr.LDA(gamma=1.0, feature_map=stream_dr.table()).fit(rows, ["a", "b"] * 10)
    assert set(plotting.loadings(table).data[0].y) == {"size", "colour=red", "colour missing"}


def test_the_curve_has_every_ridge_and_a_mark_at_the_chosen_one() -> None:
    line, mark = plotting.regularisation(cross_validated).data
    results = cross_validated.cv_results_
    np.testing.assert_array_equal(line.y, results["mean"])
    np.testing.assert_array_equal(line.error_y.array, results["std_error"])
    np.testing.assert_array_equal(line.x[1:], results["gamma"][1:])
    assert (mark.x[0], mark.y[0]) == (cross_validated.gamma_, results["mean"].min())
    axis = plotting.regularisation(cross_validated.projection()).layout.xaxis
    assert (axis.type, axis.ticktext[0], axis.tickvals[0]) == ("log", "0", line.x[0])

    pls = stream_dr.PLSDA("cv").fit(*DIGITS)
    line, mark = plotting.regularisation(pls).data
    assert [*line.x] == [*range(1, 26)]
    assert [*mark.x] == [pls.rank_]
    assert not plotting.regularisation(lda).data


def test_error_bars_are_intervals_and_loadings_have_none_where_they_are_too_short() -> None:
    t = stats.t.ppf(0.975, 4)
    marks = plotting.spectrum(cross_validated).data[2]
    spread = cross_validated.projection().spread
    np.testing.assert_array_equal(marks.y, spread.eigenvalues)
    np.testing.assert_allclose(marks.error_y.array, t * cross_validated.eigenvalues_std_)
    angles = cross_validated.angles_
    best, worst = int(angles.argmin()), int(angles.argmax())
    assert angles[best] < 30 < angles[worst]

    sure = plotting.loadings(cross_validated, best, most=64).data[0]
    largest = np.argsort(np.abs(cross_validated.components_[best]), kind="stable")[-5:]
    np.testing.assert_allclose(sure.error_x.array[-5:], t * cross_validated.components_std_[best, largest])
    unsure = plotting.loadings(cross_validated, worst)
    assert unsure.data[0].error_x.array is None
    assert f"component {worst + 1} · known to {angles[worst]:.0f}° only" in unsure.layout.title.text

    few = stream_dr.PCA(folds=5).fit(np.tile(X[:1], (9, 1)))  # all rows are in one fold
    assert len(plotting.spectrum(stream_dr.PCA(2, folds=2).fit(X)).data) == 2
    assert "no component" in plotting.loadings(few).layout.annotations[0].text


def test_drift_and_convergence() -> None:
    turned = stream_dr.LDA(n_components=1).fit(X[:100], y[:100])  # rows of two of the three classes
    largest, median = plotting.drift([lda, turned]).data
    before, after = (np.linalg.qr(e.components_.T)[0] for e in (lda, turned))
    angles = np.degrees(np.arccos(np.linalg.svd(before.T @ after)[1]))
    np.testing.assert_allclose([largest.y[0], median.y[0]], [angles.max(), np.median(angles)], rtol=1e-6)
    for records in (MARKS, "D"):
        with pytest.raises(stream_dr.errors.InvalidParameter, match="name of the model"):
            plotting.drift(records)
    refined = stream_dr.LDA(n_components=2, scatter="diagonal", gamma=1.0).fit(X, y)
    refined.refine([(X, y)], max_passes=30)
    residual, angle = plotting.convergence(refined.refine_report_).data
    passes = refined.refine_report_.passes
    assert [*residual.x] == [p.number for p in passes]
    assert [*residual.y] == [p.residual for p in passes]
    assert angle.y[0] == pytest.approx(np.pi / 2)


RECORDS = [
    {"kind": "progress", "time": 10.0 + i, "position": i, "rows": 5 * i, "models": {
        "lda": {"rows": 5 * i, "rate": 5.0, "lag": 1, "version": i, "accuracy": 0.5, "baseline": 0.25, "tested": 3},
        MARKUP: {"rows": i, "rate": None, "lag": 0, "version": 0},
    }} for i in range(10)
]  # fmt: skip
MARKS = [
    {"kind": "published", "time": 12.0, "model": "lda", "version": 2, "solution": "exact", "angles": [0.0, 0.5]},
    {"kind": "published", "time": 13.0, "model": "lda", "version": 3, "solution": "refined", "angles": [0.1, 0.2]},
    {"kind": "failed", "time": 14.0, "model": MARKUP, "position": 4, "code": "<i>"},
    *(
        {"kind": "pass", "time": 9.0, "model": "lda", "pass": i, "residual": 1.0 / i, "angle": 0.1}
        for i in (1, 2, 3, 1, 2)
    ),
]


def test_progress_draws_all_models_their_baseline_and_what_happened() -> None:
    shown = plotting.progress(RECORDS + MARKS)
    by_name = {}
    for trace in shown.data:
        by_name.setdefault(trace.name, []).append(trace)
    accuracy, rate, lag = by_name["lda"]
    assert ([*accuracy.y], [*rate.y], [*lag.y]) == ([0.5] * 10, [5.0] * 10, [1] * 10)
    assert [*by_name["always the last label"][0].y] == [0.25] * 10
    assert len(by_name["lda: version"][0].x) == len(by_name["lda: refined"][0].x) == 1
    assert by_name["lda: refined"][0].text == ("version 3",)
    assert len(plotting.progress(RECORDS + MARKS, most=4).data[0].x) <= 5
    assert plotting.drift(MARKS, "lda").data[0].y == pytest.approx(np.degrees([0.5, 0.2]))
    assert [*plotting.convergence(MARKS).data[0].y] == [1.0, 0.5]  # the last refine's passes


def test_the_leader_is_the_best_since_it_became_so() -> None:
    ticks = [
        {"kind": "progress", "time": float(i), "models": {
            "a": {"tested": 9, "accuracy": a}, "b": {"tested": 9, "accuracy": b}, "gone": {"tested": 9, "accuracy": 1.0},
            "new": {"lag": 0},
        }} for i, (a, b) in enumerate([(0.5, 0.4), (0.5, 0.6), (0.7, 0.8), (0.7, 0.9)])
    ]  # fmt: skip
    assert best_models(ticks, ["a", "b", "new"]) == (("b",), 0.9, 1.0)
    assert best_models(ticks[:1], ["a", "b"]) == (("a",), 0.5, 0.0)
    assert best_models(ticks, ["new"]) is None


def test_no_better_than_the_most_frequent_label_is_not_best() -> None:
    weak = {"tested": 9, "accuracy": 0.7, "weakness": "no better than the most frequent label (62.4 %)"}
    good = {"tested": 9, "accuracy": 0.6, "weakness": ""}
    both, alone = (
        {"kind": "progress", "time": t, "models": m} for t, m in ((0.0, {"a": weak, "b": good}), (1.0, {"a": weak}))
    )
    assert best_models([both], ["a", "b"]) == (("b",), 0.6, 0.0)
    assert best_models([both, alone], ["a", "b"]) is None


def test_models_within_two_standard_errors_lead_together() -> None:
    scores = {name: {"tested": 100, "accuracy": a, "error": 0.03} for name, a in (("a", 0.85), ("b", 0.9), ("c", 0.83))}
    tick = {"kind": "progress", "time": 5.0, "models": scores}
    assert best_models([tick], ["a", "b", "c"]) == (("b", "a"), 0.9, 5.0)
    numbers = {name: {"tested": 100, "r2": r2, "error": None} for name, r2 in (("a", -0.5), ("b", 0.25))}
    assert best_models([tick | {"models": numbers}], ["a", "b"]) == (("b",), 0.25, 5.0)


def test_accuracy_is_drawn_by_rows_learned_with_the_most_frequent_label() -> None:
    curves = {"lda": [[100, 0.5], [200, 0.75]], MARKUP: [[100, 0.25]], "gone": [[1, 1.0]]}
    told = [
        {"kind": "tested", "time": 1.0, "model": name, "curve": curve, "most_frequent": 0.2}
        for name, curve in curves.items()
    ]
    lda, other, baseline = accuracy_figure_dict(told, ["lda", MARKUP, "new"], "t")["data"]
    assert ([*lda["x"]], [*lda["y"]]) == ([100, 200], [0.5, 0.75])
    assert (other["name"], [*other["y"]]) == (html.escape(MARKUP, quote=False), [0.25])
    assert (baseline["x"], baseline["y"]) == ([50, 400], [0.2, 0.2])
    numbers = accuracy_figure_dict([{**told[0], "most_frequent": None}], ["lda"], "t")
    assert len(numbers["data"]) == 1
    assert numbers["layout"]["yaxis"]["title"]["text"] == "R²"
    assert not accuracy_figure_dict([], ["lda"], "t")["data"]


@pytest.mark.parametrize(("rows", "ends"), [(1, (0.9, 10)), (3, (1.5, 10)), (200, (100, 400))])
def test_a_chart_of_one_point_has_whole_rows_and_a_baseline(rows: int, ends: tuple[float, float]) -> None:
    told = [{"kind": "tested", "time": 1.0, "model": "lda", "curve": [[rows, 0.5]], "most_frequent": 0.2}]
    figure = accuracy_figure_dict(told, ["lda"], "t")
    assert figure["layout"]["xaxis"]["range"] == pytest.approx(np.log10(ends))
    assert tuple(figure["data"][1]["x"]) == ends
    assert figure["layout"]["xaxis"]["dtick"] == "D2"  # 1, 2, 5, 10, of which a range of two doublings has one
    wide = accuracy_figure_dict([{**told[0], "curve": [[20, 0.5], [9_000_000, 0.5]]}], ["lda"], "t")
    assert wide["layout"]["xaxis"]["dtick"] == 1

    tick = {
        "kind": "progress",
        "time": 60.0,
        "models": {"lda": {"lag": 0, "rate": 0.5, "tested": 9, "accuracy": 0.5, "baseline": 0.2}},
    }
    progress = plotting.progress([tick])
    assert progress.layout.xaxis.range == ("1970-01-01 00:00:30.000", "1970-01-01 00:01:30.000")
    assert (progress.layout.yaxis2.tickformat, progress.layout.yaxis2.exponentformat) == (None, "SI")  # .5, not 500m
    assert progress.data[0].mode == "markers"


def test_one_bar_does_not_fill_a_spectrum() -> None:
    X = np.random.default_rng(0).normal(size=(60, 6))
    for components, width in ((1, 0.2), (3, 0.6), (6, 0.8)):
        figure = plotting.spectrum(stream_dr.PCA(components).fit(X))
        assert figure.data[0].width == pytest.approx(width)
        assert figure.layout.xaxis.range == (0.5, components + 0.5)


def test_the_confusion_holds_the_shares_of_each_label() -> None:
    confusion = {"labels": ["<b>", "c"], "counts": [[3, 1], [0, 4]], "rows": [5, 4]}
    told = [{"kind": "tested", "id": i, "confusion": confusion if i else None} for i in (0, 1)]
    (cells,) = confusion_figure_dict(told, 1, "t")["data"]
    assert cells["z"] == [[0.6, 0.2], [0.0, 1.0]]
    assert cells["y"] == ["&lt;b&gt;", "c"]
    assert not confusion_figure_dict(told, 0, "t")["data"]


def test_what_is_not_there_is_said() -> None:
    for shown in (plotting.progress([]), plotting.convergence([]), plotting.drift([], "lda")):
        assert not shown.data
        assert shown.layout.annotations[0].text
    assert "no rows yet" in plotting.projection(lda, X[:0]).layout.annotations[0].text
    neighbours = stream_dr.LaplacianEigenmaps(reservoir=50, n_neighbors=5).fit(X)
    assert "no loadings" in plotting.loadings(neighbours).layout.annotations[0].text


def test_names_labels_and_errors_are_text() -> None:
    labels = np.where(y == 0, MARKUP, "plain")
    told = stream_dr.LDA(n_components=1).fit(X, labels)
    two = stream_dr.PCA(n_components=2).fit(X)
    names = [MARKUP] * 13
    for shown in (
        plotting.projection(told, X, labels),
        plotting.projection(two, X, labels),
        plotting.loadings(told, names=names),
        plotting.progress(RECORDS + MARKS),
    ):
        held = json.dumps(json.loads(shown.to_json()))
        assert "&lt;b&gt;a&lt;/b&gt; &amp; &lt;a href=" in held
        assert "<b>" not in held
        assert "<i>" not in held


def test_the_page_counts_only_labels_that_the_newest_rows_have(tmp_path) -> None:
    rows = [[i, 0] for i in range(100)]
    body = json.dumps({"rows": rows, "labels": [f"l{i:03}" for i in range(100)]}).encode()
    with opened(tmp_path) as directory:
        directory.add_model("pca", "pca", {"n_components": 1})
        directory.append([stream_dr.rows_draft(body, "json")])
        figures = stream_dr.LiveFigures(directory, status=dict)
        page = json.loads(figures.draw_as_page_json("pca", stream_dr.FigureOptions(rows=60), [], {}))
    assert len(page["counts"]) == 51
    assert page["counts"][0] == ["l040", 1]
    assert page["counts"][-1] == ["10 other labels", 10]
