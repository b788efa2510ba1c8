"""`stream-dr suggest`: which method to take for a file, and the command that takes it."""

import shlex
from typing import Annotated

import typer

from stream_dr.commands.output import Bar, result, say
from stream_dr.commands.reading import AsClasses, ReadAs, reads_files, stop_at_ids
from stream_dr.commands.specs import Sources, spec_text


@reads_files
def suggest(
    ctx: typer.Context,
    sources: Sources,
    read_as: ReadAs,
    as_classes: AsClasses = False,
    time: Annotated[bool, typer.Option("--time", help="Hold out the later rows of the file, not random ones.")] = False,
) -> None:
    """Compare the methods that fit a file by held-out folds of a sample; print a line each, and the command for the best.

    Accuracy of labels, R2 of numbers (+-: over folds), beside what needs no method: all features with scikit-learn's linear
    classifier or regression, ten principal components with it, and the most frequent class. Methods that predict are asked
    themselves; behind others stands the linear classifier. The sample has at most 20,000 rows and 64 MiB of the whole file;
    after 60 seconds of comparing, no method begins another fold.

        stream-dr suggest data.csv --label y
    """
    from stream_dr.evaluation.comparison import suggest as compare

    read_as.check(sources)
    read_as = read_as if as_classes else read_as.predicting_numbers(sources)
    files = read_as.files(sources)
    column = read_as.likely_id(files)
    if column is not None:
        say(f"note: {column} looks like an id, by which rows can be unlearned; it is taken for one and for no feature.")
        read_as = read_as.with_options(id=column)
    if not as_classes:
        stop_at_ids(files, ctx.obj)

    source = read_as.open_all(sources)
    with Bar("suggest", None) as bar:
        found = compare(
            source,
            target="class" if as_classes else "auto",
            time=time,
            feature_map=read_as.map_of(read_as.files(sources)),
            progress=lambda what, done, total: bar.show(done, total, title=what),
        )
    result(str(found))
    spec, begin = spec_text(found.best.key, found.best.key, found.best.params), ctx.obj.index("suggest")
    named = [] if column is None else ["--id", column]
    words = [word for word in ctx.obj[begin + 1 :] if word != "--time"]
    learn = [*ctx.obj[:begin], "learn", *words, *named, "--dir", "D", "--model", spec]
    say("the best of the methods, learned from all rows into the directory D:")
    result(f"stream-dr {shlex.join(learn)}")
