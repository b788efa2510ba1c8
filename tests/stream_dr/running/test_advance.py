"""Advancing: one event at a time, bit-equal to the estimator alone; a model that raises is failed and the others go on."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_dr.batch.json_rows import block_from_json
from stream_dr.errors import InsufficientStorage, SourceMissing
from stream_dr.estimators import ESTIMATORS
from stream_dr.models.snapshot import state_sha256
from stream_dr.running.advance import ParsedEvent, apply_event_or_rebuild, apply_events_to_models, backfill
from tests.support.batches import dense, opened, put

MODELS: dict[str, tuple[str, dict[str, Any]]] = {"lda": ("lda", {}), "pca": ("ccipca", {}), "cm": ("class_means", {})}


def steps(count: int) -> list[ParsedEvent]:
    return [ParsedEvent(i, dense(i)) for i in range(count)]


@pytest.mark.parametrize("workers", [0, 3])
def test_a_model_is_its_estimator_bit_for_bit(tmp_path: Path, workers: int) -> None:
    with opened(tmp_path, **MODELS) as directory:
        models = list(directory.models.values())
        pool = ThreadPoolExecutor(workers) if workers else None
        put(directory, *(dense(i) for i in range(6)))
        apply_events_to_models(models, steps(6), directory, pool)
        for model in models:
            alone = ESTIMATORS[model.spec.estimator]()
            for step in steps(6):
                assert step.block is not None
                alone.partial_fit(step.block.X, step.block.y) if alone.target_kinds else alone.partial_fit(step.block.X)
            assert state_sha256(model.accumulator.freeze()) == state_sha256(alone.state_)
            assert (model.position, model.rows, model.learning_time.rows) == (5, 120, 120)
        if pool:
            pool.shutdown()


def test_an_event_is_applied_once(tmp_path: Path) -> None:
    with opened(tmp_path, cm=("class_means", {})) as directory:
        model = directory.model("cm")
        for step in (*steps(3), *steps(3)):
            apply_event_or_rebuild(model, step, directory)
        assert model.rows == 60


def test_a_model_that_raises_is_failed_for_good_and_the_others_go_on(tmp_path: Path) -> None:
    with opened(tmp_path, **MODELS) as directory:
        put(directory, *(dense(i) for i in range(4)))

        def explode(block: object) -> None:
            raise ZeroDivisionError("boom")

        directory.model("lda").accumulator.add = explode
        apply_events_to_models(list(directory.models.values()), steps(4), directory, None)
        failure = directory.model("lda").failure
        assert failure is not None
        assert (failure.position, failure.code) == (0, "internal")
        assert "boom" in failure.message
        assert directory.model("cm").rows == 80
        assert directory.model("lda").describe(3)["state"] == "failed"
    with opened(tmp_path) as directory:
        model = directory.model("lda")
        assert (model.status, model.failure) == ("failed", failure)
        apply_event_or_rebuild(model, steps(1)[0], directory)
        assert model.rows == 0


@pytest.mark.parametrize("error", [SourceMissing("gone"), InsufficientStorage("no room to open a segment")])
def test_what_surroundings_lack_fails_a_model_only_until_the_restart(tmp_path: Path, error: Exception) -> None:
    with opened(tmp_path, cm=("class_means", {})) as directory:
        put(directory, dense(0))
        apply_event_or_rebuild(directory.model("cm"), ParsedEvent(0, error=error), directory)
        assert directory.model("cm").status == "failed"
    with opened(tmp_path) as directory:
        assert directory.model("cm").status == "catching_up"


@pytest.mark.parametrize("key", [k for k in ESTIMATORS if ESTIMATORS[k].target_kinds])
@pytest.mark.parametrize("given", [{"labels": [None] * 3}, {"target": [None] * 3}])
def test_rows_without_targets_of_another_kind_are_rows_without_targets(
    tmp_path: Path, key: str, given: dict[str, Any]
) -> None:
    kinds = ESTIMATORS[key].target_kinds
    known = {"labels": list("abc")} if "class" in kinds else {"labels": [["a"], ["b"], ["a", "c"]]}
    rows = {"rows": [[1.0, 2.0], [2.0, 1.0], [0.0, 3.0]]}
    with opened(tmp_path, m=(key, {})) as directory:
        put(directory, block_from_json(rows | known), block_from_json(rows | given), block_from_json(rows | known))
        backfill(directory, [directory.model("m")], directory.position)
        model = directory.model("m")
        assert (model.failure, model.rows, model.rows_skipped) == (None, 6, 3)


def test_a_flipped_bit_of_a_number_is_not_learned(tmp_path: Path) -> None:
    block = dense(0)
    with opened(tmp_path, m=("class_means", {})) as directory:
        put(directory, block)
    (file,) = (tmp_path / "log").glob("*.bodies")
    stored, number = file.read_bytes(), np.ascontiguousarray(block.X)[5, 2].tobytes()
    assert stored.count(number) == 1
    at = stored.index(number)
    file.write_bytes(stored[:at] + bytes([stored[at] ^ 1]) + stored[at + 1 :])
    with opened(tmp_path) as directory:
        backfill(directory, [directory.model("m")], directory.position)
        model = directory.model("m")
        assert model.failure is not None
        assert (model.failure.code, model.rows) == ("damaged_file", 0)
