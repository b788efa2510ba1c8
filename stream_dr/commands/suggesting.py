"""Command `stream-dr suggest`, which compares methods on a file."""

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from stream_dr.commands.output import ProgressBar, print_result, say
from stream_dr.commands.reading import AsClasses, ReadOptions, add_file_options, refuse_ids_or_numbers_as_labels
from stream_dr.commands.specs import Sources, format_spec

if TYPE_CHECKING:
    from stream_dr.evaluation.comparison import Comparison


@add_file_options
def suggest(
    ctx: typer.Context,
    sources: Sources,
    read_as: ReadOptions,
    as_classes: AsClasses = False,
    time: Annotated[
        bool, typer.Option("--time", help="Hold out the last rows of the file instead of random rows.")
    ] = False,
) -> None:
    """Compare methods on a file, and print the best command.

    The printed command uses the best method. No command is printed if the best method is no better
    than the most frequent label: its accuracy is not two standard errors higher.

    The methods are fitted on a random sample of the file and scored by cross-validation. The score
    is the accuracy if the targets are labels, and R2 if the targets are numbers. The number after
    +- is the standard deviation over the folds.

    Three baselines are scored too:

    - scikit-learn's linear classifier or linear regression,
    - this linear method on ten principal components,
    - the most frequent label, or the mean of the numbers.

    A method that cannot predict is scored by the linear method on its projected rows. The sample
    has at most 20,000 rows and 64 MiB. No further method is fitted after 60 seconds.

        stream-dr suggest data.csv --label y
    """
    from stream_dr.evaluation.comparison import suggest as compare

    read_as.refuse_unsupported_options(sources)
    read_as = read_as if as_classes else read_as.with_label_as_target_if_fractional(sources)
    files = read_as.open_all_but_shards(sources)

    # If a column looks like ids, do not use it as a feature.
    column = read_as.likely_id_column(files)
    if column is not None:
        say(f"note: {column} looks like an id, by which rows can be unlearned; it is taken for one and for no feature.")
        read_as = read_as.with_options(id=column)
    if not as_classes:
        refuse_ids_or_numbers_as_labels(files, ctx.obj)

    source = read_as.open_as_one_source(sources)
    with ProgressBar("suggest", None) as bar:
        comparison = compare(
            source,
            target="class" if as_classes else "auto",
            time=time,
            feature_map=read_as.text_or_table_map_spec(read_as.open_all_but_shards(sources)),
            progress=lambda what, done, total: bar.show(done, total, title=what),
        )
    print_result(str(comparison))

    _propose_learn(comparison, column, ctx.obj)


def _propose_learn(comparison: "Comparison", id_column: str | None, arguments: list[str]) -> None:
    """Print a command `learn` that uses the best method.

    The command has the files and options of this command.

    arguments: arguments of this process.
    """
    best = comparison.best
    if best is None:
        top = comparison.lines[0]
        say(f"no method is proposed: {top.method} is {comparison.weakness(top)}.")
        return
    spec = format_spec(best.key, best.key, best.params)
    start = arguments.index("suggest")
    words = [word for word in arguments[start + 1 :] if word != "--time"]
    id_option = [] if id_column is None else ["--id", id_column]
    learn = [*arguments[:start], "learn", *words, *id_option, "--dir", "D", "--model", spec]
    say("the best of the methods, learned from all rows into the directory D:")
    print_result(f"stream-dr {shlex.join(learn)}")
