"""Advancing: one event at a time, bit-equal to the estimator alone; a model that raises is failed and the others go on."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from stream_dr.engine.advance import Step, advance, advance_all
from stream_dr.engine.history import LogHistory
from stream_dr.engine.snapshot import state_sha256
from stream_dr.errors import SourceMissing
from stream_dr.estimators import ESTIMATORS
from tests.stream_dr.engine.batches import dense, opened, put

MODELS: dict[str, tuple[str, dict[str, Any]]] = {"lda": ("lda", {}), "pca": ("ccipca", {}), "cm": ("class_means", {})}


def steps(count: int) -> list[Step]:
    return [Step(i, dense(i)) for i in range(count)]


@pytest.mark.parametrize("workers", [0, 3])
def test_a_model_is_its_estimator_bit_for_bit(tmp_path: Path, workers: int) -> None:
    with opened(tmp_path, **MODELS) as directory:
        models = list(directory.models.values())
        pool = ThreadPoolExecutor(workers) if workers else None
        put(directory, *(dense(i) for i in range(6)))
        advance_all(models, steps(6), LogHistory(directory), pool)
        for model in models:
            alone = ESTIMATORS[model.spec.estimator]()
            for step in steps(6):
                assert step.block is not None
                alone.partial_fit(step.block.X, step.block.y) if alone.target_kinds else alone.partial_fit(step.block.X)
            assert state_sha256(model.accumulator.freeze()) == state_sha256(alone.state_)
            assert (model.position, model.rows, model.advanced_rows) == (5, 120, 120)
        if pool:
            pool.shutdown()


def test_an_event_is_applied_once(tmp_path: Path) -> None:
    with opened(tmp_path, cm=("class_means", {})) as directory:
        model = directory.model("cm")
        for step in (*steps(3), *steps(3)):
            advance(model, step, LogHistory(directory))
        assert model.rows == 60


def test_a_model_that_raises_is_failed_for_good_and_the_others_go_on(tmp_path: Path) -> None:
    with opened(tmp_path, **MODELS) as directory:
        put(directory, *(dense(i) for i in range(4)))

        def explode(block: object) -> None:
            raise ZeroDivisionError("boom")

        directory.model("lda").accumulator.add = explode
        advance_all(list(directory.models.values()), steps(4), LogHistory(directory))
        failure = directory.model("lda").failure
        assert failure is not None
        assert (failure.position, failure.code) == (0, "internal")
        assert "boom" in failure.message
        assert directory.model("cm").rows == 80
        assert directory.model("lda").describe(3)["state"] == "failed"
    with opened(tmp_path) as directory:
        model = directory.model("lda")
        assert (model.status, model.failure) == ("failed", failure)
        advance(model, steps(1)[0], LogHistory(directory))
        assert model.rows == 0


def test_a_missing_shard_fails_a_model_only_until_the_restart(tmp_path: Path) -> None:
    with opened(tmp_path, cm=("class_means", {})) as directory:
        put(directory, dense(0))
        advance(directory.model("cm"), Step(0, error=SourceMissing("gone")), LogHistory(directory))
        assert directory.model("cm").status == "failed"
    with opened(tmp_path) as directory:
        assert directory.model("cm").status == "catching_up"
