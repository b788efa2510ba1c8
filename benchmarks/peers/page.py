"""Tables and the picture of docs/where-it-pays.md."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.papers import drawing
from benchmarks.peers.methods import METHODS
from benchmarks.peers.tasks import SOURCES

HEAD = ("method", "numbers", "bytes", "rows/s", "MB", "5-NN", "linear", "same", "recall")

DRAWN = ("MNIST test set", "isolet rows", "news20")
"""Data sets of the picture."""

DASHED = ("PCA", "CCIPCA", "scikit-learn TruncatedSVD", "random projection")
"""Methods without labels, dashed in the picture."""


class Result(NamedTuple):
    """Figures of a data set.

    Attributes
    ----------
    shape : tuple of int
        Number of rows to learn, and of features.
    asking : int
        Number of rows that ask.
    classes : int
        Number of labels.
    rounds : int
        Number of rounds that all methods were measured in.
    figures : dict
        Figures of each method.
    """

    shape: tuple[int, int]
    asking: int
    classes: int
    rounds: int
    figures: dict[str, dict[str, Any]]


def table(head: tuple[str, ...], lines: list[list[str]]) -> str:
    """Return a table of Markdown."""
    rows = [list(head), ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in rows)


def cells(name: str, figures: dict[str, Any]) -> list[str]:
    """Return a method's line of the first table."""
    formats = {
        "numbers": ",d",
        "bytes": ",d",
        "rows": ",.0f",
        "memory": ",.0f",
        "knn": ".3f",
        "linear": ".3f",
        "same": ".3f",
        "recall": ".3f",
    }
    shown = [format(figures[key], spec) if key in figures else "–" for key, spec in formats.items()]
    if name == "all features":
        shown[2:4] = ["–", "–"]  # nothing is learned
    return [name, *shown]


def section(name: str, result: Result) -> str:
    """Return the tables of a data set, with its source and the date."""
    source = SOURCES[name]
    measured = {method: f for method, f in result.figures.items() if "skipped" not in f}
    skipped = [f"{method}: {f['skipped']}" for method, f in result.figures.items() if "skipped" in f]
    rows, features = result.shape
    lines = [
        f"### {name}",
        "",
        f"{rows:,} rows learned, {result.asking:,} asking, {features:,} features, {result.classes} labels. "
        f"Source: {source.origin}. Licence: {source.licence}. "
        f"Measured on {datetime.now(UTC):%Y-%m-%d}, rounds: {result.rounds}.",
        "",
        table(HEAD, [cells(method, figures) for method, figures in measured.items()]),
        "",
    ]
    if skipped:
        lines += [f"Skipped: {'; '.join(skipped)}.", ""]
    curves = {method: f["by_dimension"] for method, f in measured.items() if "by_dimension" in f}
    if curves:
        lines += ["5-NN / recall by the numbers a row:", "", dimension_table(curves), ""]
    return "\n".join(lines)


def dimension_table(curves: dict[str, dict[str, dict[str, float]]]) -> str:
    """Return the table of 5-NN and recall by dimension."""
    dimensions = sorted({int(d) for curve in curves.values() for d in curve})
    lines = []
    for method, curve in curves.items():
        found = [curve.get(str(d)) for d in dimensions]
        lines.append([method, *(f"{f['knn']:.3f} / {f['recall']:.3f}" if f else "–" for f in found)])
    return table(("method", *map(str, dimensions)), lines)


def write(results: dict[str, Result], docs: Path) -> None:
    """Replace the sections of the measured data sets in the page, and draw the picture."""
    path = docs / "where-it-pays.md"
    text = path.read_text(encoding="utf8")
    for name, result in results.items():
        pattern = rf"(<!-- peers: {re.escape(name)} -->\n).*?(?=<!-- end of peers -->)"
        new = section(name, result)
        text, count = re.subn(pattern, lambda found, new=new: f"{found[1]}\n{new}\n", text, flags=re.DOTALL)
        if count != 1:
            raise SystemExit(
                f"{path} needs one place for {name}, it has {count}: add <!-- peers: {name} --> and its end"
            )
    path.write_text(text, encoding="utf8")
    print(f"written: {path}")
    if set(DRAWN) <= set(results):
        draw(results, docs)


def draw(results: dict[str, Result], docs: Path) -> None:
    """Draw 5-NN and recall by dimension, a column of panels for each data set."""
    drawn = [name for name, method in METHODS.items() if method.by_dimension]
    colours = {name: f"C{number}" for number, name in enumerate(drawn)}
    picture, panels = drawing.figure(2, len(DRAWN), width=3.6, height=2.9)
    for column, name in enumerate(DRAWN):
        for (key, title), axes in zip(
            (("knn", "5-NN accuracy"), ("recall", "recall of raw neighbours")), panels[:, column], strict=True
        ):
            for method, figures in results[name].figures.items():
                curve = figures.get("by_dimension")
                if curve:
                    style = "--" if method in DASHED else "-"
                    heights = [f[key] for f in curve.values()]
                    axes.plot(
                        [int(d) for d in curve], heights, style, color=colours[method], marker="o", ms=3, label=method
                    )
            axes.axvline(results[name].classes - 1, color="0.7", linestyle=":")
            axes.set(xscale="log", xlabel="numbers a row", ylim=(0, 1))
            axes.set_xticks([1, 2, 4, 8, 16, 32, 64, 128], ["1", "2", "4", "8", "16", "32", "64", "128"])
            axes.minorticks_off()
            axes.set_title(f"{name}: {title}", fontsize=9)
    panels[0, 0].legend(fontsize=7)
    drawing.save(picture, str(docs), "where-it-pays")
