"""Replay in parts: the same bits from any number of threads, those of a replay to rounding, and a directory as after one."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_dr import errors
from stream_dr.directory.directory import Directory
from stream_dr.directory.verify import verify
from stream_dr.distributed.parts import PlanRunner, Task, replay_in_parallel_tasks, thread_plan_runner
from stream_dr.estimators import ESTIMATORS, make
from stream_dr.models.snapshot import state_sha256
from stream_dr.running.replay import Progress, ReplayReport, ReplaySettings, replay
from stream_dr.shards.dataset import ShardWriter, open_dataset
from tests.support.batches import SMALL, dense, put, shards, sparse

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "lda": ("lda", {}),
    "old": ("pca", {"decay": 0.99}),
    "chosen": ("lda", {"gamma": "cv", "decay": 0.999}),
    "means": ("class_means", {}),
    "places": ("lpp", {"reservoir": 50}),
    "walk": ("ccipca", {}),
    "drawn": ("pca", {"feature_map": {"map": "nystroem", "landmarks": 5}}),
    "steps": ("iskm", {}),
}


def in_small_tasks(threads: int) -> PlanRunner:
    """Run plans in threads, divided anew into tasks of two batches. So small a plan is one task otherwise."""
    run_plan = thread_plan_runner(threads)

    def run_divided(plan: Any, on_batch: Any) -> Any:
        references = plan.whole.references
        tasks = tuple(Task(references[i : i + 2]) for i in range(0, len(references), 2))
        return run_plan(plan._replace(tasks=tasks), on_batch)

    return run_divided


def run(
    path: Path, folder: Path, count: int | None, models: Any = None, watch: Any = None, **options: Any
) -> ReplayReport:
    with Directory(path, limits=SMALL) as directory:
        for name, (key, params) in (models or MODELS).items():
            directory.add_model(name, key, params)
        settings, dataset = ReplaySettings(**options), open_dataset(folder)
        if count is None:
            return replay(directory, dataset, settings, watch)
        return replay_in_parallel_tasks(in_small_tasks(count), directory, dataset, settings, watch)


def digests(path: Path) -> dict[str, tuple[int, int, str]]:
    with Directory(path, writable=False) as directory:
        return {n: (m.position, m.rows, state_sha256(m.accumulator.freeze())) for n, m in directory.models.items()}


@pytest.mark.parametrize("options", [{}, {"loops": 2, "shuffle": 3}])
def test_the_same_bits_from_any_number_of_threads(tmp_path: Path, options: dict[str, Any]) -> None:
    folder = shards(tmp_path / "s", blocks=11)
    for count in (1, 2, 5):
        run(tmp_path / str(count), folder, count, **options)
    assert digests(tmp_path / "1") == digests(tmp_path / "2") == digests(tmp_path / "5")


@pytest.mark.parametrize("sparse_rows", [False, True])
@pytest.mark.parametrize("key", [k for k in ESTIMATORS if k not in ("lpp", "npe", "lle", "laplacian_eigenmaps")])
def test_answers_are_those_of_a_replay(tmp_path: Path, key: str, sparse_rows: bool) -> None:
    kinds = make(key, {}).target_kinds
    if sparse_rows and kinds and "multilabel" not in kinds:
        pytest.skip("takes one label a row, the sparse rows have several")
    folder = shards(tmp_path / "s", sparse_rows=sparse_rows)
    given = {"m": (key, {"scatter": "exact"} if hasattr(make(key, {}), "scatter") else {})}
    run(tmp_path / "parts", folder, 2, given)
    run(tmp_path / "one", folder, None, given)
    found = []
    for path in ("parts", "one"):
        with Directory(tmp_path / path, writable=False) as directory:
            model = directory.model("m")
            assert (model.rows, model.position, directory.rows, directory.position) == (240, 11, 240, 11)
            found.append((directory.schema, model.published.projection))  # type: ignore[union-attr]
    (schema, projection), (other, wanted) = found
    assert schema == other
    X = (sparse(99) if sparse_rows else dense(99)).X
    shown, expected = projection.apply(X), wanted.apply(X)
    np.testing.assert_allclose(shown, expected, atol=1e-7 * np.abs(expected).max())


def test_the_directory_is_as_after_a_replay(tmp_path: Path) -> None:
    folder = shards(tmp_path / "s")
    seen: list[Progress] = []
    report = run(tmp_path / "d", folder, 2, watch=seen.append)
    assert (report.rows, report.events, report.caught_up) == (240, 12, 0)
    assert max(p.rows for p in seen) == seen[-1].total_rows == 240
    assert all(finding.error is None for finding in verify(tmp_path / "d"))
    assert run(tmp_path / "d", folder, None).events == 0  # an ordinary replay finds nothing to do
    assert run(tmp_path / "d", folder, 2).events == 0
    assert run(tmp_path / "d", folder, 2, again=True).events == 12


def test_rows_that_were_there_come_first(tmp_path: Path) -> None:
    folder = shards(tmp_path / "s")
    for path in ("parts", "one"):
        with Directory(tmp_path / path, limits=SMALL) as directory:
            put(directory, dense(50), dense(51))
    run(tmp_path / "parts", folder, 3)
    run(tmp_path / "one", folder, None)
    with Directory(tmp_path / "parts", writable=False) as a, Directory(tmp_path / "one", writable=False) as b:
        for name in ("lda", "old", "chosen", "means", "walk", "steps"):
            mine, other = a.model(name), b.model(name)
            assert (mine.rows, mine.position) == (other.rows, other.position) == (280, 13)
            X = dense(77).X
            wanted = other.published.projection.apply(X)  # type: ignore[union-attr]
            shown = mine.published.projection.apply(X)  # type: ignore[union-attr]
            np.testing.assert_allclose(shown, wanted, atol=1e-9 * np.abs(wanted).max())


def test_what_is_refused_is_named_and_the_directory_stays_as_it_was(tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "a", rows_per_batch=20) as writer:
        for seed in range(8):
            writer.write(dense(seed))
    with ShardWriter(tmp_path / "b", rows_per_batch=20) as writer:
        for seed in range(3):
            writer.write(dense(seed, features=5))
    for count in (1, 3):
        with Directory(tmp_path / "d", limits=SMALL) as directory:
            directory.add_model("lda", "lda", {})
            dataset = open_dataset([tmp_path / "a", tmp_path / "b"])
            with pytest.raises(errors.WidthMismatch, match=r"/b/part-00000\.arrow, batch 0"):
                replay_in_parallel_tasks(in_small_tasks(count), directory, dataset, ReplaySettings())
            assert (directory.position, directory.model("lda").rows) == (-1, 0)


def test_labels_of_two_types_in_two_tasks_are_refused(tmp_path: Path) -> None:
    for name, label in (("a", "x"), ("b", 7)):
        with ShardWriter(tmp_path / name, rows_per_batch=20) as writer:
            for seed in range(2):
                block = dense(seed)
                writer.write(block._replace(y=block.y._replace(labels=(label,), codes=0 * block.y.codes)))
    with Directory(tmp_path / "d", limits=SMALL) as directory:
        directory.add_model("lda", "lda", {})
        dataset = open_dataset([tmp_path / "a", tmp_path / "b"])
        with pytest.raises(errors.StreamDRError, match="label"):
            replay_in_parallel_tasks(in_small_tasks(2), directory, dataset, ReplaySettings())
        assert directory.position == -1
