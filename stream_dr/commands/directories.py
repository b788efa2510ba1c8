"""Commands that show a directory, or keep it safe."""

import json
from pathlib import Path
from typing import Annotated

import typer

from stream_dr.aliases import JsonDict
from stream_dr.commands.output import ProgressBar, print_result, say

ModelsDirectory = Annotated[
    Path, typer.Argument(metavar="D", envvar="STREAM_DR_DIR", help="Directory with the models.")
]


def inspect(
    directory: Annotated[Path, typer.Argument(metavar="D", envvar="STREAM_DR_DIR", help="Directory to show.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show a directory's log, schema and models.

    The models are shown as they are in their newest snapshots. A service may use the directory at
    the same time.
    """
    from stream_dr.directory.inspect import inspect as describe

    description = describe(directory)
    if as_json:
        print_result(json.dumps(description, indent=2))
        return

    schema = description["schema"]
    kind = schema["target_kind"] or "no"
    layout = schema["layout"] or "no"
    log = f"position {description['position']}, {description['rows']} rows"
    print_result(f"{log}, {layout} rows of {schema['features']} features")
    print_result(f"{kind} targets, {len(schema['labels'])} labels, weights: {schema['weighted']}")
    for name, model in description["models"].items():
        _print_model(name, model)


def _print_model(name: str, model: JsonDict) -> None:
    """Print the state and the version of a model.

    model: description of the model. `stale_rows` is the number of rows that the model has learned
        since its version was solved.
    """
    stale = ""
    if model["stale_rows"]:
        stale = f", {model['stale_rows']} stale rows"
    params = ", ".join(f"{k}={v}" for k, v in model["params"].items())
    learned = f"{model['state']}, {model['rows']} rows, position {model['position']}"
    version = f"version {model['version']}, {model['components']} components, {model['solution']}{stale}"
    digest = f"sha256 {model['state_sha256'][:16]}"
    print_result(f"{name}: {model['estimator']}({params}), {learned}, {version}, {digest}")
    for release in model["releases"]:
        print_result(f"  release {release['name']}: version {release['version']}, {release['rows']} rows")
    failure = model["failure"]
    if failure:
        print_result(f"  failed at position {failure['position']} ({failure['code']}): {failure['message']}")


def report(
    directory: ModelsDirectory,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="OUT", help="File to write. It must end in .html.")],
    rows: Annotated[int, typer.Option(min=1, max=100_000, help="Number of newest rows to project.")] = 5_000,
) -> None:
    """Write one page with every figure of every model.

    The page also shows the schema, the state of the log, and where each number comes from. The
    page can be read without other files and without a network. A service may use the directory at
    the same time.

        stream-dr report D --out report.html
    """
    from stream_dr.directory.directory import Directory
    from stream_dr.disk import check_parent_folder_exists
    from stream_dr.errors import InvalidParameter
    from stream_dr.plotting.directory_figures import write_report

    if out.suffix != ".html":
        raise InvalidParameter(f"{out} ends in {out.suffix!r}; a report is a file in .html.")
    check_parent_folder_exists(out)
    with Directory(directory, writable=False) as opened, ProgressBar("report", len(opened.models), "models") as bar:
        write_report(opened, out, rows, bar.show)
    print_result(f"report written to {out}")


def plot(
    directory: ModelsDirectory,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="OUT", help="File to write: .html, .png, .svg or .pdf.")],
    kind: Annotated[
        str,
        typer.Option(
            help="Figure: projection, spectrum, loadings, regularisation, accuracy, progress, convergence, drift, "
            "confusion."
        ),
    ] = "projection",
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Model to draw. accuracy and progress show all models.")
    ] = None,
    rows: Annotated[int, typer.Option(min=1, max=100_000, help="projection: number of newest rows to show.")] = 10_000,
    dimensions: Annotated[int, typer.Option(min=2, max=3, help="projection: number of axes, 2 or 3.")] = 2,
    component: Annotated[int, typer.Option(min=1, help="loadings: number of the component, from 1.")] = 1,
    width: Annotated[int, typer.Option(min=100, help="Width of a picture, in pixels.")] = 900,
    height: Annotated[int, typer.Option(min=100, help="Height of a picture, in pixels.")] = 560,
) -> None:
    """Draw one figure of a directory's models.

    A service may use the directory at the same time. An .html page can be opened in any browser,
    without other files. To write a picture (.png, .svg or .pdf), install the extra `plot` and
    Chromium or Chrome.

        stream-dr plot D --model lda -o lda.html
        stream-dr plot D --model lda --kind loadings --component 2 -o lda.svg
    """
    from stream_dr.directory.directory import Directory
    from stream_dr.plotting.directory_figures import FigureOptions, draw_directory_figure
    from stream_dr.plotting.figure import check_can_write_figure, write_figure

    check_can_write_figure(out)
    with Directory(directory, writable=False) as opened:
        shown_model = opened.model(model) if model is not None else None
        # Users count components from 1, the library from 0.
        figure = draw_directory_figure(opened, kind, shown_model, FigureOptions(rows, dimensions, component - 1))
    write_figure(figure, out, width, height)
    print_result(f"{kind} written to {out}")


def backup(
    directory: Annotated[Path, typer.Argument(metavar="D", help="Directory to copy.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Path of the copy. It must not exist yet.")],
) -> None:
    """Copy a directory as it is, and check the copy.

    A service may use the directory D at the same time. The copy is a directory like any other, and
    can be used with `verify`, `inspect`, `serve` and `restore`. If the command fails, no copy is
    created.

    The copy includes the shards that `learn` has written into D. The copy does not include shards
    that `replay` has read from other folders, so back up these shards, too. Unlearned rows that
    were erased from D are not in the copy.

        stream-dr backup D copy
    """
    from stream_dr.directory.backup import backup as copy

    with ProgressBar("copying", None, "bytes") as bar:
        copy(directory, out, bar.show)
    say(f"{out} is a copy of {directory}.")


def restore(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Backup to read. It is not changed.")],
    directory: Annotated[Path, typer.Argument(metavar="D", help="Directory to create. It must not exist yet.")],
) -> None:
    """Create a directory from a backup, and check every byte.

    If the backup is damaged, no directory is created. The log may refer to shards that are missing
    on this machine. The command lists the missing shards. Without these shards, models can learn
    and project rows, but cannot be rebuilt or refined.

        stream-dr restore copy D
    """
    from stream_dr.directory.backup import backup as copy
    from stream_dr.directory.verify import verify_shards_of_log

    with ProgressBar("copying", None, "bytes") as bar:
        copy(out, directory, bar.show)
    # Shards in other folders are no part of a backup, so they may be missing. This is no failure.
    for finding in verify_shards_of_log(directory):
        if finding.error is not None:
            say(f"{finding.what}: {finding.error.code}: {finding.error}")
    say(f"{directory} is a copy of {out}.")


def verify(
    directory: Annotated[Path, typer.Argument(metavar="D", envvar="STREAM_DR_DIR", help="Directory to check.")],
) -> None:
    """Check a directory's log, shards, models and snapshots.

    The command lists the result of each check and changes nothing. If something is damaged or
    missing, the exit status is 1, and the first error is printed on stderr.
    """
    from stream_dr.directory.verify import verify as check

    # Print all findings, and then raise the first error.
    first = None
    for finding in check(directory):
        outcome = f"{finding.error.code}: {finding.error}" if finding.error is not None else "ok"
        print_result(f"{finding.what}: {outcome}")
        first = first or finding.error
    if first is not None:
        raise first
