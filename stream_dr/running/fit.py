"""fit: trains an estimator on files or tables by batches.

A progress bar shows the number of rows learned.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from stream_dr.aliases import JsonDict
from stream_dr.batch.block import Block
from stream_dr.batch.rows import Source, as_block, batches
from stream_dr.datasets.sources import files_of_folder, open_source
from stream_dr.errors import InvalidParameter
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.shards.dataset import are_shards_or_missing, open_dataset

if TYPE_CHECKING:
    from rich.progress import Progress

AnyEstimator = TypeVar("AnyEstimator", bound=Estimator)


def fit(
    estimator: AnyEstimator,
    source: Any,
    label: str | None = None,
    *,
    format: str | None = None,
    progress: bool = True,
    **options: Any,
) -> AnyEstimator:
    """Fit an estimator to files or tables, batch by batch.

    Anything that the estimator learned before is forgotten. If an error is raised, the estimator
    does not change. The memory holds the estimator's state and one batch. Returns the estimator.

    Parameters
    ----------
    source : path, list of paths, Source, table or stream of tables
        A path is a shard, or a file in any format of `open_source`. A table is anything that the
        estimator's own `fit` accepts.
    label : str or None
        Name of the column that holds the targets.
    format : str or None
        Format of the files. The formats are listed in `open_source`. None: the suffix decides.
    progress : bool
        True to show the number of rows learned so far. Nothing is shown if stderr is no terminal.
    **options
        Further options of `open_source`.

    Raises InvalidParameter if there is no row to learn from. Also raises the errors of reading and
    of learning.

    Examples
    --------
    >>> from pathlib import Path
    >>> import stream_dr
    >>> _ = Path("rows.csv").write_text("a,b,y\\n1,2,u\\n2,1,u\\n5,6,v\\n6,5,v\\n")
    >>> stream_dr.fit(stream_dr.LDA(), "rows.csv", label="y", progress=False).n_samples_seen_
    4
    """
    # Only a feature map can learn a table with text or missing values. Without one, read numbers.
    options = options if estimator.feature_map else {"raw": False} | options
    blocks = _read_blocks(source, label, format, options)

    # Let a copy learn, so that the estimator does not change if an error is raised.
    learned = type(estimator)(**estimator.get_params())

    with _progress_bar(progress) as bar:
        task = bar.add_task("learn", total=None)
        for block in blocks:
            learned.partial_fit(block)
            bar.update(task, completed=learned.n_samples_seen_)

    if "fitted_" not in vars(learned) or not learned.n_samples_seen_:
        raise InvalidParameter(
            "the source has no row to learn from; give one with rows, and targets where they are needed."
        )
    with estimator.lock:
        estimator.fitted_ = learned.fitted_
    return estimator


def _read_blocks(source: Any, label: str | None, format: str | None, options: JsonDict) -> Iterable[Block]:
    """Return the batches of a source as Blocks.

    The parameters have the meaning that `fit` describes.
    """
    # If the source names files, open them as shards or in their format.
    paths = [source] if isinstance(source, str | os.PathLike) else source
    if isinstance(paths, list | tuple) and paths and all(isinstance(path, str | os.PathLike) for path in paths):
        all_options = options if label is None else options | {"label": label}
        without_options = format is None and not set(all_options) - {"raw"}
        paths = [file for path in paths for file in files_of_folder(path)]
        shards = without_options and all(are_shards_or_missing(Path(path)) for path in paths)
        source = open_dataset(paths) if shards else open_source(paths, format, **all_options)
    elif format is not None or set(options) - {"raw"}:
        raise InvalidParameter(f"format and {', '.join(options) or 'options'} say how files are read; source is none.")

    # A Source yields batches. Any other source is a table or a stream of tables.
    if isinstance(source, Source):
        return (block for _, block in source.events())
    return batches(as_block(source, label))


def _progress_bar(visible: bool) -> "Progress":
    """Return a progress bar on stderr.

    The bar is not shown if `visible` is False or stderr is no terminal.
    """
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}: {task.completed:,.0f} rows"), TimeElapsedColumn())
    return Progress(*columns, console=console, disable=not (visible and console.is_terminal), transient=True)
