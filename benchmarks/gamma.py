"""Compare gamma="cv" with other ways to choose the ridge: `python -m benchmarks.gamma`.

    STREAM_DR_DATA=… python -m benchmarks.gamma [--data NAME …] [--splits 5] [--markdown] [--pictures FOLDER]

Each data set is split at random into training and test rows. Printed are means over the splits of

- the test error of LDA with gamma=0,
- the test error of scikit-learn's LDA with the shrinkage of Ledoit and Wolf,
- the test error of LDA with the gamma that GridSearchCV finds by accuracy, with 5 folds of rows,
- the test error of LDA(gamma="cv"), which compares the same 26 values of gamma,
- the time of gamma="cv", divided by the time of GridSearchCV and by the time of gamma=0.

Times are of learning and solving, without the prediction of the test rows.

The error is the share of wrong labels. For numbers as targets, the method is OPLS, the error is
1 − R², and GridSearchCV compares R². Data sets that are not available here are skipped.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import PolynomialFeatures

from benchmarks.papers import drawing
from benchmarks.papers.sets import available, load
from stream_dr import LDA, OPLS

Rows = tuple[np.ndarray, np.ndarray]
"""Rows (n, features) and their targets (n,)."""

Draw = Callable[[np.ndarray, np.random.Generator], tuple[np.ndarray, np.ndarray]]
"""Function that draws the numbers of training rows and of test rows, from the targets."""

BAR = 0.01
"""Largest difference of the errors of gamma="cv" and of GridSearchCV that is acceptable."""


class DataSet(NamedTuple):
    """Data set of the comparison.

    Attributes
    ----------
    source : str
        Name of the data set in `benchmarks.papers.sets`, or "diabetes".
    draw : Draw
        Function that splits the rows.
    method : LDA or OPLS
        Method, with gamma=0.
    targets : function
        Function that computes the targets from the labels of the source.
    """

    source: str
    draw: Draw
    method: LDA | OPLS = LDA()
    targets: Callable[[np.ndarray], np.ndarray] = lambda y: y


class Result(NamedTuple):
    """Test errors and seconds of one split. NaN if a method does not take the targets."""

    zero: float
    ledoit_wolf: float
    grid: float
    folds: float
    zero_seconds: float
    grid_seconds: float
    folds_seconds: float


def first(n: int) -> Draw:
    """Return a function that draws n training rows. All other rows are test rows."""

    def draw(y: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        order = rng.permutation(len(y))
        return order[:n], order[n:]

    return draw


def unbalanced(y: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw 2 to 93 training rows of each class, and as many test rows if there are."""
    train, test = [], []
    counts = np.geomspace(2, 93, len(np.unique(y))).round().astype(int)
    for label, n in zip(rng.permutation(np.unique(y)), counts, strict=True):
        rows = rng.permutation(np.flatnonzero(y == label))
        train.append(rows[:n])
        test.append(rows[n : 2 * n])
    return np.concatenate(train), np.concatenate(test)


def rare(y: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw 500 training rows and 1,173 test rows, of which 3 % have the label 1."""
    ones = rng.permutation(np.flatnonzero(y == 1))
    others = rng.permutation(np.flatnonzero(y == 0))
    return np.concatenate([ones[:15], others[:485]]), np.concatenate([ones[15:50], others[485:]])


def is_eight(y: np.ndarray) -> np.ndarray:
    """Return 1 for the label 8, 0 for another label."""
    return np.where(y == 8, 1, 0)


SETS = {
    "digits, 150 rows": DataSet("digits", first(150)),
    "digits, 900 rows": DataSet("digits", first(900)),
    "digits, 2 to 93 rows a class": DataSet("digits", unbalanced),
    "digits, 8 or not, 300 rows": DataSet("digits", first(300), targets=is_eight),
    "digits, 3 % are 8, 500 rows": DataSet("digits", rare, targets=is_eight),
    "MNIST test set, 1,500 rows": DataSet("MNIST test set", first(1500)),
    "isolet part, 1,000 rows": DataSet("isolet part", first(1000)),
    "breast cancer, 120 rows": DataSet("breast cancer", first(120), LDA(standardize=True)),
    "diabetes, degree 2, 200 rows": DataSet("diabetes", first(200), OPLS(standardize=True)),
}


def rows_of(data: DataSet) -> Rows:
    """Return the rows and the targets of a data set."""
    if data.source == "diabetes":
        X, y = load_diabetes(return_X_y=True)
        return PolynomialFeatures(2, include_bias=False).fit_transform(X), y
    X, y = load(data.source)
    return X, data.targets(y)


def compare(method: Any, train: Rows, test: Rows) -> Result:
    """Return the test errors and the times of all ways to choose the ridge."""

    def error(model: Any) -> float:
        return 1.0 - float(model.score(*test))

    def seconds(model: Any) -> float:
        """Fit a model, and return the time until its solution is there."""
        began = time.perf_counter()
        fitted = model.fit(*train)
        getattr(fitted, "best_estimator_", fitted).components_  # noqa: B018 (solves)
        return time.perf_counter() - began

    ours = type(method)(gamma="cv", standardize=method.standardize)
    folds_seconds = seconds(ours)
    search = GridSearchCV(method, {"gamma": ours.cv_results_["gamma"]}, cv=5)
    grid_seconds = seconds(search)
    zero_seconds = seconds(method)

    ledoit_wolf = np.nan
    if isinstance(method, LDA):
        ledoit_wolf = error(LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(*train))
    return Result(error(method), ledoit_wolf, error(search), error(ours), zero_seconds, grid_seconds, folds_seconds)


def mean_result(data: DataSet, splits: int) -> Result:
    """Return the means over random splits of a data set."""
    X, y = rows_of(data)
    results = []
    for seed in range(splits):
        train, test = data.draw(y, np.random.default_rng(seed))
        results.append(compare(data.method, (X[train], y[train]), (X[test], y[test])))
    return Result(*np.mean(results, axis=0).tolist())


HEAD = ("data set", "gamma=0", "Ledoit-Wolf", "GridSearchCV", 'gamma="cv"', "time / GridSearchCV", "time / gamma=0")
"""Head of the table. The last two columns are the time of gamma="cv", divided by another time."""


def line(cells: tuple[str, ...], markdown: bool) -> str:
    """Return a line of the table."""
    if markdown:
        return "| " + " | ".join(cells) + " |"
    return f"{cells[0]:<30}" + "".join(f"{cell:>21}" for cell in cells[1:])


def print_table(names: list[str], splits: int, markdown: bool) -> None:
    """Print the results of data sets, and the number of them within the bar."""
    print(line(HEAD, markdown))
    if markdown:
        print("|---" * len(HEAD) + "|")

    near = total = 0
    for name in names:
        if SETS[name].source != "diabetes" and not available(SETS[name].source):
            print(f"{name}: skipped, because STREAM_DR_DATA names no folder with this data set")
            continue
        result = mean_result(SETS[name], splits)
        errors = ["-" if np.isnan(e) else f"{e:.3f}" for e in result[:4]]
        ratios = (result.folds_seconds / result.grid_seconds, result.folds_seconds / result.zero_seconds)
        print(line((name, *errors, f"{ratios[0]:.3f}", f"{ratios[1]:.1f}"), markdown), flush=True)
        near += result.folds <= result.grid + BAR
        total += 1
    print(f'\n{near} of {total} data sets: the error of gamma="cv" is at most {BAR} above GridSearchCV\'s.')


def draw_path(folder: str) -> None:
    """Draw the error from the folds beside the error on test rows, for each ridge."""
    X, y = load("digits")
    train, test = SETS["digits, 150 rows"].draw(y, np.random.default_rng(0))
    model = LDA(gamma="cv").fit(X[train], y[train])
    path = model.cv_results_
    wrong = [1 - LDA(gamma=gamma).fit(X[train], y[train]).score(X[test], y[test]) for gamma in path["gamma"]]

    picture, ((left, right),) = drawing.figure(1, 2, width=4.2)
    left.errorbar(path["gamma"][1:], path["mean"][1:], path["std_error"][1:], capsize=2)
    left.set_title("error from the folds", fontsize=10)
    left.set_ylabel("weighted squared error")
    right.plot(path["gamma"][1:], wrong[1:])
    right.set_title("error on 1,647 test rows", fontsize=10)
    right.set_ylabel("share of wrong labels")
    for axes in (left, right):
        axes.axvline(model.gamma_, color="0.4", linestyle="--", label=f"chosen: {model.gamma_:.3g}")
        axes.set(xscale="log", xlabel="gamma")
        axes.legend(fontsize=9)
    drawing.save(picture, folder, "gamma-path")


def draw_angles(folder: str) -> None:
    """Draw eigenvalues with error bars and the angles of components, for two numbers of rows."""
    X, y = load("digits")
    order = np.random.default_rng(0).permutation(len(y))
    picture, ((left, right),) = drawing.figure(1, 2, width=4.2)
    for rows, shift in ((150, -0.1), (1500, 0.1)):
        model = LDA(gamma="cv", folds=10).fit(X[order[:rows]], y[order[:rows]])
        place = np.arange(1, len(model.angles_) + 1) + shift
        left.errorbar(
            place, model.eigenvalues_, model.eigenvalues_std_, fmt="o", ms=4, capsize=3, label=f"{rows:,} rows"
        )
        right.plot(place, model.angles_, "o-", ms=4, label=f"{rows:,} rows")
    left.set(xlabel="component", ylabel="eigenvalue ± standard error")
    right.set(xlabel="component", ylabel="angle in degrees", ylim=(0, 92))
    for axes in (left, right):
        axes.set_xticks(range(1, 10))
        axes.legend(fontsize=9)
    drawing.save(picture, folder, "gamma-angles")


def main(arguments: list[str] | None = None) -> None:
    """Print the table, and draw pictures if a folder is given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", nargs="+", choices=SETS, default=list(SETS), metavar="NAME", help="names in the table"
    )
    parser.add_argument("--splits", type=int, default=5, help="number of random splits")
    parser.add_argument("--markdown", action="store_true", help="print the table for a page")
    parser.add_argument("--pictures", metavar="FOLDER", help="draw gamma-path.png and gamma-angles.png there, too")
    given = parser.parse_args(arguments)

    warnings.simplefilter("ignore")
    # Compile first, so that the times are without it.
    tiny = np.eye(40)[:, :3], np.arange(40) % 2
    compare(LDA(), tiny, tiny)

    print_table(given.data, given.splits, given.markdown)
    if given.pictures:
        draw_path(given.pictures)
        draw_angles(given.pictures)


if __name__ == "__main__":
    main()
