"""Command `stream-dr refine`, which computes a model's exact projection."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stream_dr.aliases import JsonDict
from stream_dr.commands.output import ProgressBar, print_result, say

if TYPE_CHECKING:
    from stream_dr.directory.directory import Directory
    from stream_dr.models.model import Model


def refine(
    directory: Annotated[Path, typer.Argument(metavar="D", envvar="STREAM_DR_DIR", help="Directory with the model.")],
    model: Annotated[str, typer.Option("--model", metavar="NAME", help="Name of the model.")],
    tol: Annotated[
        float,
        typer.Option(min=0.0, help="Stop at this relative residual and at this angle between passes, in radians."),
    ] = 1e-6,
    max_passes: Annotated[int, typer.Option(min=1, help="Maximum number of passes.")] = 20,
    workers: Annotated[int, typer.Option(min=1, metavar="N", help="Number of threads.")] = 1,
    scheduler: Annotated[
        str | None,
        typer.Option(
            metavar="tcp://HOST:PORT", help="Run the passes on a Dask cluster. Needs the extra `distributed`."
        ),
    ] = None,
) -> None:
    """Compute a model's exact projection by passes over the log.

    A model that is behind the log first learns the missing events. The exact projection stays
    published until the next refine. After an interruption, the same command continues with the
    next pass.

        stream-dr refine D --model lda --tol 1e-4
    """
    from stream_dr.directory.directory import Directory

    with Directory(directory) as opened:
        refine_and_print(opened, opened.model(model), tol, max_passes, workers, scheduler)


def refine_and_print(
    directory: "Directory", model: "Model", tol: float, max_passes: int, workers: int = 1, scheduler: str | None = None
) -> None:
    """Refine a model with a progress bar, and print results.

    directory: opened directory of the model.
    tol: relative residual, and angle between passes in radians, at which the passes end.
    max_passes: maximum number of passes.
    workers: number of threads.
    scheduler: address of a Dask cluster that runs the passes. If None, the passes run in this
        process.

    Raises the errors of `refine_model`.
    """
    from stream_dr.distributed.distributed_refine import refine_on_cluster
    from stream_dr.estimators.fitting.refining import not_converged_message
    from stream_dr.running.refine import refine_model
    from stream_dr.running.warm_up import warm_up

    # Compile numba functions first, so that the progress bar does not count the compilation.
    warm_up([model.estimator], say, json=False)
    last: JsonDict = {}
    with ProgressBar("refine", None) as bar:

        def show_pass(progress: JsonDict) -> None:
            last.update(progress)
            # Progress with the key "exact" means that no pass is needed.
            if "exact" in progress:
                return
            bar.show(progress["rows"], progress["total_rows"], f"pass {progress['pass']}")
            if "residual" in progress:
                reached = f"residual {progress['residual']:.3g}, angle {progress['angle']:.3g} rad"
                say(f"pass {progress['pass']}: {reached}, {progress['seconds']:.1f} s")

        if scheduler is None:
            published = refine_model(directory, model, tol, max_passes, show_pass, workers)
        else:
            published = refine_on_cluster(scheduler, directory, model, tol, max_passes, show_pass)

    if not last.get("converged", True):
        say(f"warning (not_converged): {not_converged_message(last['pass'], last['residual'], last['angle'], tol)}")
    if last.get("exact"):
        print_result(f"{model.name}: exact already, from one pass; nothing was changed")
        return
    result = f"version {published.version}, {published.projection.n_components} components"
    print_result(f"{model.name}: refined at position {published.position}, residual {published.residual:.3g}, {result}")
