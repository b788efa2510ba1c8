"""Refine over the log: the exact solution where only the diagonal is kept; resumed between passes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_dr import errors
from stream_dr.directory.directory import Directory
from stream_dr.directory.draft import Removal, unlearn_draft
from stream_dr.estimators import ESTIMATORS
from stream_dr.running.advance import backfill
from stream_dr.running.refine import refine_frozen_and_publish, refine_model
from tests.support.batches import SMALL, dense, opened, put

DIAGONAL = {"gamma": 1.0, "scatter": "diagonal"}


def filled(path: Path) -> Directory:
    directory = opened(path, lda=("lda", DIAGONAL))
    put(directory, *(dense(i, 30, 8) for i in range(10)))
    return directory


def test_it_is_the_exact_solution(tmp_path: Path) -> None:
    with filled(tmp_path) as directory:
        published = refine_model(directory, directory.model("lda"), 1e-9, 40)
        exact = ESTIMATORS["lda"](gamma=1.0)
        for i in range(10):
            exact.partial_fit(dense(i, 30, 8).X, dense(i, 30, 8).y)
        np.testing.assert_allclose(
            np.abs(published.projection.loadings),
            np.abs(exact.components_.T),
            atol=1e-8,  # type: ignore[attr-defined]
        )
        assert published.projection.solution == "refined"
    with Directory(tmp_path, writable=False) as directory:
        again = directory.model("lda").published
        assert again is not None
        assert (again.refined_at, again.version) == (9, published.version)


def test_a_cancelled_refine_goes_on_at_its_next_pass(tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []
    with filled(tmp_path / "straight") as directory:
        straight = refine_model(directory, directory.model("lda"), 1e-9, 40)
    with filled(tmp_path / "cancelled") as directory:
        model = directory.model("lda")
        backfill(directory, [model], directory.position)
        frozen = model.freeze()
        passes: list[int] = []
        for _ in range(40):
            told.clear()
            one_made = lambda: any("residual" in t for t in told)  # noqa: E731
            published = refine_frozen_and_publish(directory, model, frozen, 1e-9, 40, told.append, one_made)
            passes += [t["pass"] for t in told if "residual" in t]
            if published is not None:
                break
        assert passes == list(range(1, len(passes) + 1))
        assert len(passes) > 2
        assert published is not None
        np.testing.assert_array_equal(published.projection.loadings, straight.projection.loadings)  # type: ignore[attr-defined]


def test_a_refine_is_cancelled_within_a_pass(tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []
    with filled(tmp_path) as directory:
        model = directory.model("lda")
        backfill(directory, [model], directory.position)
        asked = iter([False, False, True])
        assert (
            refine_frozen_and_publish(directory, model, model.freeze(), 1e-9, 40, told.append, lambda: next(asked))
            is None
        )
        assert [t for t in told if "residual" in t] == []


def test_a_refine_of_a_removed_model_leaves_nothing(tmp_path: Path) -> None:
    with filled(tmp_path) as directory:
        model = directory.model("lda")
        backfill(directory, [model], directory.position)

        def told(facts: dict[str, Any]) -> None:
            if "residual" in facts and directory.holds(model):
                directory.remove_model("lda")

        assert (
            refine_frozen_and_publish(
                directory, model, model.freeze(), 1e-9, 40, told, lambda: not directory.holds(model)
            )
            is None
        )
        assert list((tmp_path / "snapshots").iterdir()) == []


def test_more_passes_go_on_where_too_few_ended(tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []
    with filled(tmp_path) as directory:
        model = directory.model("lda")
        refine_model(directory, model, 1e-9, 2, told.append)
        assert [t["converged"] for t in told if "converged" in t] == [False, False]
        told.clear()
        refine_model(directory, model, 1e-9, 40, told.append)
        assert next(t["pass"] for t in told if "converged" in t) == 3
        told.clear()
        refine_model(directory, model, 1e-9, 40, told.append)
        assert next(t["pass"] for t in told if "converged" in t) == 1


def test_rows_taken_out_are_not_read(tmp_path: Path) -> None:
    removal: Removal = {3: None, 4: [0, 1]}
    with filled(tmp_path) as directory:
        directory.append([unlearn_draft(removal)])
        published = refine_model(directory, directory.model("lda"), 1e-9, 40)
        assert published.rows == 268


def test_what_cannot_be_refined(tmp_path: Path) -> None:
    with opened(tmp_path, pca=("ccipca", {}), lda=("lda", DIAGONAL)) as directory:
        with pytest.raises(errors.CannotRefine):
            refine_model(directory, directory.model("pca"), 1e-6, 5)
        with pytest.raises(errors.NotFitted):
            refine_model(directory, directory.model("lda"), 1e-6, 5)
        put(directory, dense(0))
        with pytest.raises(errors.InvalidParameter):
            refine_model(directory, directory.model("lda"), -1.0, 5)
    with Directory(tmp_path, limits=SMALL) as directory, pytest.raises(errors.UnknownModel):
        directory.model("x")
