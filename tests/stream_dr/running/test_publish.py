"""Publishing: versions ascend, components keep their sign along a stream, and the map leads from one answer to the next."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_dr import random_fourier
from stream_dr.directory.directory import Directory
from stream_dr.errors import NeedsRefine
from stream_dr.running.advance import ParsedEvent, apply_event_or_rebuild
from tests.support.batches import dense, opened, put


def learn(directory: Directory, seed: int, name: str = "m") -> None:
    block = dense(seed, 40)
    (position,) = put(directory, block)
    apply_event_or_rebuild(directory.model(name), ParsedEvent(position, block), directory)


@pytest.mark.parametrize("key", ["lda", "pca", "ccipca"])
def test_signs_hold_along_a_stream(key: str, tmp_path: Path) -> None:
    with opened(tmp_path, m=(key, {"n_components": 2})) as directory:
        model, before = directory.model("m"), None
        for seed in range(15):
            learn(directory, seed)
            now = model.publish(model.freeze())
            if before is not None:
                cosines = np.sum(before.projection.loadings * now.projection.loadings, axis=0)  # type: ignore[attr-defined]
                assert (cosines > 0).all()
                assert now.version == before.version + 1
                assert now.change is not None
            before = now
        assert model.published is before


@pytest.mark.parametrize("key", ["laplacian_eigenmaps", "lle"])
@pytest.mark.parametrize("mapped", [False, True])
def test_landmarks_keep_their_signs_along_a_stream(key: str, mapped: bool, tmp_path: Path) -> None:
    spec = {"feature_map": random_fourier(40, gamma=0.1)} if mapped else {}
    with opened(tmp_path, m=(key, {"n_components": 2, "n_neighbors": 30, **spec})) as directory:
        model, before = directory.model("m"), None
        for seed in range(6):
            learn(directory, seed)
            now: Any = model.publish(model.freeze()).projection
            rows = getattr(now, "inner", now).landmarks.rows
            if before is not None:
                rows = rows if not mapped else np.vstack([dense(s, 40).X for s in range(seed + 1)])
                assert (np.sum(before.apply(rows) * now.apply(rows), axis=0) > 0).all()
            before = now


def test_the_map_carries_answers_over(tmp_path: Path) -> None:
    with opened(tmp_path, m=("pca", {"n_components": 4})) as directory:
        model, X = directory.model("m"), dense(99, 30).X
        learn(directory, 0)
        old = model.publish(model.freeze())
        learn(directory, 1)
        new = model.publish(model.freeze())
        assert new.change is not None
        carried = old.projection.apply(X) @ new.change.map + new.change.offset
        np.testing.assert_allclose(carried, new.projection.apply(X), atol=1e-9)
        assert new.change.residual < 1e-12


def test_unused_versions_are_given_back(tmp_path: Path) -> None:
    with opened(tmp_path, m=("class_means", {})) as directory:
        model = directory.model("m")
        learn(directory, 0)
        model.publish(model.freeze())
        model.version_numbers.release_unused()
    with opened(tmp_path) as directory:
        assert directory.model("m").version_numbers.next == 2


def test_a_refined_projection_stays(tmp_path: Path) -> None:
    with opened(tmp_path, m=("class_means", {})) as directory:
        model = directory.model("m")
        learn(directory, 0)
        assert model.needs_publishing
        frozen = model.freeze()
        model.solving.error = NeedsRefine("only the diagonal is stored")
        assert model.shown_status == "failed_to_publish"
        model.publish_refined(model.estimator.solve(frozen.state), frozen, 1e-7)
        assert model.shown_status == "live"
        learn(directory, 1)
        assert not model.needs_publishing
        assert model.published is not None
        assert (model.published.refined_at, model.published.residual) == (0, 1e-7)


def test_a_solver_that_raises_changes_nothing(tmp_path: Path) -> None:
    with opened(tmp_path, m=("class_means", {})) as directory:
        model = directory.model("m")
        learn(directory, 0)
        first = model.publish(model.freeze())
        model.estimator.solve = lambda state: 1 / 0
        with pytest.raises(ZeroDivisionError):
            model.publish(model.freeze())
        assert model.published is first


def test_a_state_is_frozen_between_events(tmp_path: Path) -> None:
    """Whoever asks while one is being learned gets it whole, or the state before."""
    with opened(tmp_path, m=("class_means", {})) as directory, ThreadPoolExecutor(2) as pool:
        model, block = directory.model("m"), dense(0, 40)
        add, half, asked = model.accumulator.add, threading.Event(), threading.Event()

        def in_halves(rows: Any) -> None:
            add(rows.take(np.arange(20)))
            half.set()
            asked.wait(5.0)
            add(rows.take(np.arange(20, 40)))

        model.accumulator.add = in_halves
        put(directory, block)
        learned = pool.submit(apply_event_or_rebuild, model, ParsedEvent(0, block), directory)
        assert half.wait(5.0)
        frozen = pool.submit(model.freeze)
        threading.Timer(0.2, asked.set).start()
        learned.result(5.0)
        assert (frozen.result(5.0).position, frozen.result().rows, frozen.result().state.rows) == (0, 40, 40)
