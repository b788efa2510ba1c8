"""A steady basis: published components are turned to those of the newest release, and `change` converts between versions."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import stream_dr
from stream_dr import errors
from stream_dr.batch.block import Block
from stream_dr.directory.directory import Directory
from stream_dr.models.model import Model
from stream_dr.models.snapshot import write_snapshot_if_needed
from stream_dr.projection import Linear, canonical_projection, linear_part_or_none
from stream_dr.running.advance import backfill
from stream_dr.running.refine import refine_model
from stream_dr.solve.orientation import principal_angles
from tests.support.batches import opened, put
from tests.support.forked import run_forked

LINEAR: dict[str, tuple[str, dict[str, Any]]] = {
    "lda": ("lda", {"n_components": 5}),
    "diagonal": ("lda", {"n_components": 5, "scatter": "diagonal"}),
    "pca": ("pca", {"n_components": 3}),
    "plsda": ("plsda", {"n_components": 4}),
    "wmv": ("wmv", {"n_components": 3}),
    "srp": ("srp", {"n_components": 4}),
    "ccipca": ("ccipca", {"n_components": 3}),
    "iskm": ("iskm", {"n_components": 3}),
    "lpp": ("lpp", {"n_components": 2}),
    "mapped": (
        "lda",
        {"n_components": 5, "feature_map": {"map": "random_fourier", "n_features": 20, "gamma": 0.1, "seed": 1}},
    ),
}


def rows(seed: int, n_classes: int = 4, n_rows: int = 60) -> Block:
    """Rows (n_rows, 8) of some classes, each around a corner of its own."""
    random = np.random.default_rng(seed)
    codes = np.arange(n_rows) % n_classes
    X = random.normal(size=(n_rows, 8)) + 3 * np.eye(8)[codes]
    return Block(X, stream_dr.batch.targets.class_targets([f"c{code}" for code in codes]))


def steady(path: Path, key: str, params: dict[str, Any]) -> Directory:
    directory = opened(path)
    if "m" not in directory.models:
        directory.add_model("m", key, params, basis="steady")
    return directory


def learn(directory: Directory, *blocks: Block, publish: bool = True) -> Model:
    """Learn blocks, and publish the model after each, or only after the last."""
    model = directory.model("m")
    for number, block in enumerate(blocks, 1):
        put(directory, block)
        backfill(directory, [model], directory.position)
        assert model.failure is None, model.failure
        if publish or number == len(blocks):
            model.publish(model.freeze())
    return model


def linear_of(model: Model) -> Linear:
    assert model.published is not None
    linear = linear_part_or_none(model.published.projection)
    assert linear is not None
    return linear


@pytest.mark.parametrize("name", LINEAR)
def test_components_are_turned_to_the_newest_release(tmp_path: Path, name: str) -> None:
    key, params = LINEAR[name]
    n = params["n_components"]
    with steady(tmp_path / "D", key, params) as directory:
        model = learn(directory, rows(1))
        first = linear_of(model)
        assert first.loadings.shape[1] == n
        directory.releases.create(model, "a")
        learn(directory, rows(2), rows(3, n_classes=6))
        now = linear_of(model)
        assert now.turn is not None
        W, R = now.canonical.loadings, now.turn
        assert now.loadings.shape == (len(W), n)
        np.testing.assert_allclose(W @ R, now.loadings, atol=1e-12 * np.abs(W).max())
        np.testing.assert_allclose(R @ R.T, np.eye(len(R)), atol=1e-12)

        # The first columns are an orthogonal matrix nearest to the release, over the rows' scatter.
        released = first.loadings[:, first.loadings.any(axis=0)]
        q = released.shape[1]
        product = W.T @ model.estimator.scatter_product(model.freeze().state, released)
        nearest = scipy.linalg.svdvals(product).sum()
        assert np.vdot(R[:, :q], product) == pytest.approx(nearest, rel=1e-9)
        if np.linalg.matrix_rank(product) == q:
            np.testing.assert_allclose(R[:, :q], scipy.linalg.polar(product)[0], atol=1e-9)

        # The others diagonalise the eigenvalues, descending, and the last are zeros.
        rest = R[:, q : len(R)]
        diagonalised = rest.T @ np.diag(now.eigenvalues) @ rest
        np.testing.assert_allclose(diagonalised, np.diag(np.diagonal(diagonalised)), atol=1e-9 * now.eigenvalues.max())
        assert (np.diff(np.diagonal(diagonalised)) <= 1e-12).all()
        assert not R[:, len(R) :].any()


@pytest.mark.parametrize("name", LINEAR)
def test_what_is_published_depends_on_state_and_release_alone(tmp_path: Path, name: str) -> None:
    key, params = LINEAR[name]
    asked = rows(9).X
    found = []
    for path, often in ((tmp_path / "often", True), (tmp_path / "seldom", False)):
        with steady(path, key, params) as directory:
            model = learn(directory, rows(1))
            directory.releases.create(model, "a")
            learn(directory, rows(2), rows(3, n_classes=6), rows(4, n_classes=6), publish=often)
            found.append(model.published.projection.apply(asked).tobytes())  # type: ignore[union-attr]
            write_snapshot_if_needed(model, model.freeze(), directory.path)
    with steady(tmp_path / "seldom", key, params) as directory:  # as after a kill
        model = directory.model("m")
        assert model.spec.basis == "steady"
        found.append(model.published.projection.apply(asked).tobytes())  # type: ignore[union-attr]
        model.publish(model.freeze())
        found.append(model.published.projection.apply(asked).tobytes())  # type: ignore[union-attr]
    assert len(set(found)) == 1


def learn_and_die(path: Path, key: str, params: dict[str, Any]) -> None:
    """Make a release, publish and snapshot, learn more, and be killed."""
    directory = steady(path, key, params)
    model = learn(directory, rows(1))
    directory.releases.create(model, "a")
    learn(directory, rows(2))
    write_snapshot_if_needed(model, model.freeze(), directory.path)
    learn(directory, rows(3, n_classes=6))
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("name", LINEAR)
def test_a_kill_between_publications_changes_no_bit(tmp_path: Path, name: str) -> None:
    key, params = LINEAR[name]
    assert run_forked("", learn_and_die, tmp_path / "killed", key, params) == -signal.SIGKILL
    found = []
    for path in ("killed", "alive"):
        with steady(tmp_path / path, key, params) as directory:
            if path == "alive":
                directory.releases.create(learn(directory, rows(1)), "a")
                learn(directory, rows(2), rows(3, n_classes=6), publish=False)
            model = learn(directory, rows(4, n_classes=6))
            assert directory.releases.names(model) == {"a"}
            found.append(model.published.projection.apply(rows(9).X).tobytes())  # type: ignore[union-attr]
    assert found[0] == found[1]


def test_angles_between_versions_are_those_of_the_canonical_basis(tmp_path: Path) -> None:
    found: list[Any] = []
    for name, basis in (("a", "steady"), ("b", None)):
        with opened(tmp_path / name) as directory:
            directory.add_model("m", "lda", {"n_components": 5}, basis=basis)  # type: ignore[arg-type]
            before, after = (learn(directory, rows(seed)).published for seed in (1, 2))
            assert before is not None
            assert after is not None
            found.append(principal_angles(before.projection, after.projection))
    np.testing.assert_allclose(found[0], found[1], atol=1e-9)


def test_without_a_release_the_order_is_canonical(tmp_path: Path) -> None:
    with steady(tmp_path / "D", "lda", {"n_components": 5}) as directory:
        model = learn(directory, rows(1), rows(2))
        now = linear_of(model)
        np.testing.assert_array_equal(now.turn, np.eye(3, 5))
        largest = np.abs(now.canonical.loadings).argmax(axis=0)
        assert (now.canonical.loadings[largest, np.arange(3)] > 0).all()


def test_fewer_directions_than_the_release_has(tmp_path: Path) -> None:
    with steady(tmp_path / "D", "lda", {"n_components": 5}) as directory:
        model = learn(directory, rows(1, n_classes=3), rows(2, n_classes=6))
        directory.releases.create(model, "a")
        directory.append([stream_dr.directory.draft.unlearn_draft({1: None})])
        learn(directory, rows(3, n_classes=3))
        now = linear_of(model)
        assert now.turn is not None
        assert (now.turn.shape, now.loadings.shape[1]) == ((2, 5), 5)
        np.testing.assert_allclose(now.turn @ now.turn.T, np.eye(2), atol=1e-12)


def test_predictions_are_those_of_the_canonical_basis(tmp_path: Path) -> None:
    with steady(tmp_path / "D", "lda", {"n_components": 4}) as directory:
        model = learn(directory, rows(1))
        directory.releases.create(model, "a")
        learn(directory, rows(2, n_classes=6))  # five directions would be needed to predict all: the readout has a rest
        asked = rows(9, n_classes=6)
        scores = model.published.projection.target_score_projection().apply(asked.X)  # type: ignore[union-attr]
        canonical = canonical_projection(model.published.projection)  # type: ignore[union-attr]
        np.testing.assert_allclose(scores, canonical.target_score_projection().apply(asked.X), atol=1e-9)  # type: ignore[attr-defined]
        assert linear_of(model).readout.rest is not None  # type: ignore[union-attr]


def test_a_refined_projection_is_turned_too(tmp_path: Path) -> None:
    with steady(tmp_path / "D", "lda", {"n_components": 5, "scatter": "diagonal"}) as directory:
        model = learn(directory, rows(1))
        directory.releases.create(model, "a")
        learn(directory, rows(2, n_classes=6))
        first = refine_model(directory, model, 1e-9, 50).projection.apply(rows(9).X)
        again = refine_model(directory, model, 1e-9, 50).projection.apply(rows(9).X)
        assert first.tobytes() == again.tobytes()
        assert linear_of(model).turn is not None
        assert linear_of(model).solution == "refined"


def test_new_columns_of_a_table_fill_in(tmp_path: Path) -> None:
    with opened(tmp_path / "D") as directory:
        directory.add_model("m", "pca", {"n_components": 3, "feature_map": {"map": "table"}}, basis="steady")
        for colours in (["red", "blue"], ["green", "red"], ["blue", "grey"]):
            table = [{"size": float(i), "colour": colours[i % 2]} for i in range(40)]
            directory.append(
                [stream_dr.rows_draft(stream_dr.directory.draft.canonical_json({"rows": table}).encode(), "json")]
            )
            model = directory.model("m")
            backfill(directory, [model], directory.position)
            model.publish(model.freeze())
            if not directory.releases.entries(model):
                directory.releases.create(model, "a")
        now = linear_of(model)
        assert now.turn is not None
        assert now.loadings.shape[1] == 3
        np.testing.assert_allclose(now.turn @ now.turn.T, np.eye(3), atol=1e-12)


@pytest.mark.parametrize(
    ("key", "params", "says"),
    [
        ("lda", {}, "number of components"),
        ("pca", {"n_components": 5_000}, "at most 4,096"),
        ("plsda", {"n_components": "cv", "folds": 3}, "number of components"),
        ("pca", {"n_components": 0.9}, "number of components"),
        ("information_gain", {"n_components": 2}, "InformationGain"),
        ("lle", {"n_components": 2}, "LLE"),
        ("pca", {"n_components": 2, "feature_map": {"map": "nystroem", "kernel": "rbf"}}, "nystroem"),
    ],
)
def test_what_cannot_be_steady_is_refused_by_name(tmp_path: Path, key: str, params: dict[str, Any], says: str) -> None:
    with opened(tmp_path / "D") as directory:
        with pytest.raises(errors.InvalidParameter, match=says):
            directory.add_model("m", key, params, basis="steady")
        assert directory.models == {}


def test_the_basis_of_a_model_stays(tmp_path: Path) -> None:
    with opened(tmp_path / "D") as directory:
        directory.add_model("m", "pca", {"n_components": 2}, basis="steady")
        directory.add_model("free", "pca", {"n_components": 2})
        assert directory.add_model("m", "pca", {"n_components": 2})[1] is False
        with pytest.raises(errors.ModelExists, match="basis='steady'"):
            directory.add_model("free", "pca", {"n_components": 2}, basis="steady")


def test_the_newest_release_of_a_steady_basis_is_deleted_only_on_demand(tmp_path: Path) -> None:
    with steady(tmp_path / "D", "pca", {"n_components": 2}) as directory:
        model = learn(directory, rows(1))
        directory.releases.create(model, "a")
        learn(directory, rows(2))
        directory.releases.create(model, "b")
        directory.releases.delete(model, "a")
        with pytest.raises(errors.ReleaseServed, match="basis=reset"):
            directory.releases.delete(model, "b")
        directory.releases.delete(model, "b", reset_basis=True)
        learn(directory, rows(3))
        np.testing.assert_array_equal(linear_of(model).turn, np.eye(2))


def test_change_is_the_least_squares_map_over_the_rows() -> None:
    X, more = rows(1).X, rows(2).X @ np.diag([3.0, 1, 1, 1, 1, 1, 1, 0.1])
    pca = stream_dr.PCA(3).fit(X)
    old = pca.projection()
    new = pca.partial_fit(more).projection()
    all_rows = np.vstack([X, more])
    z_old, z_new = (p.apply(all_rows) - p.apply(all_rows).mean(axis=0) for p in (old, new))
    wanted = np.linalg.lstsq(z_old, z_new, rcond=None)[0]
    found = stream_dr.change(old, new, estimator=pca)
    assert found is not None
    np.testing.assert_allclose(found.map, wanted, atol=1e-9)
    residual = np.linalg.norm(z_old @ wanted - z_new) / np.linalg.norm(z_new)
    assert found.residual == pytest.approx(residual, rel=1e-9)

    over_loadings = stream_dr.change(old, new)
    assert over_loadings is not None
    assert np.abs(over_loadings.map - wanted).max() > 1e-3
    without_rows = stream_dr.change(old, new, estimator=stream_dr.PCA(1).fit(np.ones((5, 8))))
    assert without_rows is not None
    assert without_rows.residual == 1.0
    narrower = stream_dr.change(old, new, estimator=stream_dr.PCA(1).fit(X[:, :3]))
    assert narrower is not None
    assert narrower.map.shape == (3, 3)
    same = stream_dr.change(new, new, estimator=pca)
    assert same is not None
    np.testing.assert_allclose((same.map, *[]), (np.eye(3),), atol=1e-9)
    assert stream_dr.change(old, stream_dr.InformationGain(2).fit(np.abs(X), ["a", "b"] * 30).projection()) is None
