"""Evaluate on Dask: one task for each model, side by side.

Every task reads all shards, and tests each batch before it learns it. Test-then-train is a
sequence, so the evaluation of one model cannot be split.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from stream_dr.distributed.cluster import check_workers, connect, gather_results, submit
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.evaluation.test_then_train import EvaluateSettings, Point, Score, Shuffled, evaluate
from stream_dr.models.entry import Spec
from stream_dr.models.saved import estimator_of
from stream_dr.shards.dataset import Dataset


class Evaluation(NamedTuple):
    """Data of an evaluation.

    source: rows to learn.
    test: rows to test with. None: the source.
    shuffle: True to learn in random order, by the settings' seed.
    """

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
    """Evaluate models, as `evaluate`, on the workers of the scheduler at `address`.

    curve: receives the points of the curves, model by model.

    Raises ClusterError, and what `evaluate` raises.
    """
    jobs: list[tuple[dict[str, Spec], EvaluateSettings]] = [
        ({name: spec}, settings._replace(full=False)) for name, spec in models.items()
    ]
    if settings.full:
        jobs.append(({}, settings))
    # The baseline is the same for all models, so only the last task computes it.
    without_baseline = [(specs, own._replace(baseline=False)) for specs, own in jobs[:-1]]

    with connect(address) as client:
        check_workers(client)
        futures = [submit(client, _evaluate, evaluation, *job) for job in (*without_baseline, *jobs[-1:])]
        results = gather_results(client, futures)

    for point in (point for _, points in results for point in points):
        (curve or (lambda point: None))(point)
    return [score for scores, _ in results for score in scores]


def _evaluate(
    evaluation: Evaluation, specs: dict[str, Spec], settings: EvaluateSettings
) -> tuple[list[Score], list[Point]]:
    """Evaluate models on a worker."""
    points: list[Point] = []
    estimators: dict[str, Estimator] = {name: estimator_of(spec) for name, spec in specs.items()}
    rows = Shuffled(evaluation.source, settings.seed) if evaluation.shuffle else evaluation.source
    return evaluate(rows, estimators, settings, None, evaluation.test, points.append), points
