"""Evaluate models on Dask, with one task for each model.

The tasks run at the same time. Every task reads all shards. A model is tested on each batch before
the model learns the batch, so the evaluation of one model cannot be divided.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from stream_dr.distributed.cluster import check_workers, connect_to_scheduler, gather_results, submit_checked
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.evaluation.test_then_train import EvaluateSettings, Point, Score, ShuffledSource, evaluate
from stream_dr.models.entry import Spec
from stream_dr.models.saved import estimator_from_spec
from stream_dr.shards.dataset import Dataset


class Evaluation(NamedTuple):
    """Data sets of an evaluation.

    source: rows that the models learn.
    test: separate rows for the tests. None to test on the rows of `source`.
    shuffle: True to learn the rows in random order. The random seed is `EvaluateSettings.seed`.
    """

    source: Dataset
    test: Dataset | None = None
    shuffle: bool = False


def evaluate_on_cluster(
    scheduler_address: str,
    evaluation: Evaluation,
    specs_by_name: Mapping[str, Spec],
    settings: EvaluateSettings,
    on_curve_point: Callable[[Point], object] | None = None,
) -> list[Score]:
    """Evaluate models on the workers of a Dask cluster.

    The scores are the same as the scores that `evaluate` returns.

    scheduler_address: address of the Dask scheduler, tcp://host:port.
    specs_by_name: spec of each model, by name.
    settings: settings of the evaluation, as in `evaluate`.
    on_curve_point: function that receives the points of each learning curve, model by model. The
        function is called after all tasks have ended.

    Raises ClusterError and the errors of `evaluate`.
    """
    # One task for each model. The baseline `full` needs no model, so it is one more task.
    jobs: list[tuple[dict[str, Spec], EvaluateSettings]] = [
        ({name: spec}, settings._replace(full=False)) for name, spec in specs_by_name.items()
    ]
    if settings.full:
        jobs.append(({}, settings))

    # The baseline is the same for all models, so only the last task computes the baseline.
    without_baseline = [(specs, own._replace(baseline=False)) for specs, own in jobs[:-1]]

    with connect_to_scheduler(scheduler_address) as client:
        check_workers(client)
        futures = [
            submit_checked(client, _evaluate_on_worker, evaluation, *job) for job in (*without_baseline, *jobs[-1:])
        ]
        results = gather_results(client, futures)

    for point in (point for _, points in results for point in points):
        (on_curve_point or (lambda point: None))(point)
    return [score for scores, _ in results for score in scores]


def _evaluate_on_worker(
    evaluation: Evaluation, specs_by_name: dict[str, Spec], settings: EvaluateSettings
) -> tuple[list[Score], list[Point]]:
    """Evaluate models in a task on a worker.

    Returns the scores and the points of the learning curves.

    specs_by_name: spec of each model, by name.
    """
    points: list[Point] = []
    estimators: dict[str, Estimator] = {name: estimator_from_spec(spec) for name, spec in specs_by_name.items()}
    rows = ShuffledSource(evaluation.source, settings.seed) if evaluation.shuffle else evaluation.source
    return evaluate(rows, estimators, settings, None, evaluation.test, points.append), points
