"""Evaluate on Dask: a model a task, side by side; every one reads all shards, and tests each batch before it learns it.

Why this way: test-then-train is a sequence, so one model's evaluation cannot be split; those of several models have nothing
to do with each other.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from stream_dr.distributed.cluster import check_workers, connected, gathered, submit
from stream_dr.evaluation.test_then_train import EvaluateSettings, Point, Score, Shuffled, evaluate
from stream_dr.models.entry import Spec
from stream_dr.models.saved import estimator_of
from stream_dr.shards.dataset import Dataset


class Evaluation(NamedTuple):
    """source: what is learned. test: what it is tested with, or None: itself. shuffle: in random order, by the settings'
    seed."""

    source: Dataset
    test: Dataset | None = None
    shuffle: bool = False


def evaluate_on(
    address: str,
    evaluation: Evaluation,
    models: Mapping[str, Spec],
    settings: EvaluateSettings,
    curve: Callable[[Point], object] | None = None,
) -> list[Score]:
    """As `evaluate`, on the workers of the scheduler at an address; points come model by model. Raises ClusterError, and
    what `evaluate` raises."""
    jobs: list[tuple[dict[str, Spec], EvaluateSettings]] = [
        ({name: spec}, settings._replace(full=False)) for name, spec in models.items()
    ]
    if settings.full:
        jobs.append(({}, settings))
    alone = [(given, own._replace(baseline=False)) for given, own in jobs[:-1]]
    with connected(address) as client:
        check_workers(client)
        futures = [submit(client, _evaluated, evaluation, *job) for job in (*alone, *jobs[-1:])]
        found = gathered(client, futures)
    for point in (point for _, points in found for point in points):
        (curve or (lambda point: None))(point)
    return [score for scores, _ in found for score in scores]


def _evaluated(
    evaluation: Evaluation, models: dict[str, Spec], settings: EvaluateSettings
) -> tuple[list[Score], list[Point]]:
    points = list[Point]()
    made: dict[str, Any] = {name: estimator_of(spec) for name, spec in models.items()}
    rows = Shuffled(evaluation.source, settings.seed) if evaluation.shuffle else evaluation.source
    return evaluate(rows, made, settings, None, evaluation.test, points.append), points
