"""The first hour: `stream-dr learn` of a file without a model named, beside the best of scikit-learn's pipelines.

    python -m benchmarks.first_hour [SET …] [--rows 2000 20000] [--folds 5] [--model NAME=KEY…]

Three sets are made here, seeded and linear in their signal, of each number of rows:

- a CSV table of numbers with gaps, categories, dates, and prose that is noise,
- JSON lines of documents of eight topics,
- Parquet of embeddings of 384 numbers and a category.

The others ship: sparse rows like RCV1's, and scikit-learn's own. Fifths are held out. The command line learns a file of the
rest, and its model predicts; the pipelines learn the same rows. Figures are accuracy, or R2 of numbers. scikit-learn's user
drops the id and the prose, and makes a number of each date. By the command line the file is read as it is.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from operator import methodcaller
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp
from sklearn import datasets
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LassoCV, LinearRegression, LogisticRegression, Ridge, RidgeClassifier
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC

import stream_dr
from stream_dr.datasets.generate import generate_rcv1_like

TOPICS = ("sport", "money", "health", "travel", "food", "science", "music", "law")
SIZES = (2_000, 20_000)
"""Rows of the made sets."""


def mixed_table(rows: int = 2_000, seed: int = 0) -> pd.DataFrame:
    """Return orders whose `channel` is drawn with log odds that are linear in their columns.

    These are numbers and categories with gaps, and a date. An id and a note of random words say nothing.
    """
    rng = np.random.default_rng(seed)
    city = rng.choice(40, rows, p=rng.dirichlet(np.full(40, 2.0)))
    plan = rng.choice(["free", "basic", "plus", "team"], rows, p=[0.4, 0.3, 0.2, 0.1])
    age, visits = np.clip(rng.normal(42, 14, rows), 18, 90).round(), rng.poisson(4, rows)
    spent = rng.gamma(4.0, 10.0, rows).round(2)
    day = rng.integers(0, 3 * 365, rows)
    rated = rng.random(rows) < 0.7
    rating = rng.integers(1, 6, rows)
    words = _words(rng, 2_000)

    late, taste = day / 365 - 1.5, rng.normal(0, 0.8, 40)
    app = 0.06 * (42 - age) + 1.2 * (plan == "plus") + 0.8 * late + taste[city]
    phone = 0.05 * (age - 42) - 0.8 * late + 1.2 * ~rated
    web = 0.15 * (visits - 4) + 0.03 * (spent - 40) + 0.4 * (rating - 3) * rated
    scores = 1.5 * np.column_stack([app, phone, web]) + rng.gumbel(size=(rows, 3))
    return pd.DataFrame(
        {
            "order_id": [f"A{i:06d}" for i in rng.permutation(rows)],
            "age": np.where(rng.random(rows) < 0.15, np.nan, age),
            "plan": pd.Series(plan).where(rng.random(rows) > 0.05),
            "city": np.array([f"city {i:02d}" for i in range(40)])[city],
            "day": pd.to_datetime("2022-01-01") + pd.to_timedelta(day, "D"),
            "visits": visits,
            "spent": np.where(rng.random(rows) < 0.1, np.nan, spent),
            "rating": np.where(rated, rating, np.nan),
            "note": [" ".join(rng.choice(words, length)) for length in rng.integers(5, 15, rows)],
            "channel": np.array(["app", "phone", "web"])[scores.argmax(1)],
        }
    )


def documents(rows: int = 2_000, seed: int = 0) -> pd.DataFrame:
    """Return documents of eight topics, of words by Zipf's law that are more frequent in some topics."""
    rng = np.random.default_rng(seed)
    words = _words(rng, 20_000)
    base = 1.0 / np.arange(1, len(words) + 1) ** 1.05
    base /= base.sum()
    shares = []
    for _ in TOPICS:
        own = base * np.exp(rng.normal(0, 1.2, len(words)))
        shares.append(own / own.sum())
    topic = rng.choice(len(TOPICS), rows, p=rng.dirichlet(np.full(len(TOPICS), 8.0)))
    texts = []
    for t in topic:
        length = int(np.clip(rng.lognormal(3.6, 0.5), 8, 300))
        mine = rng.random(length) < 0.5
        drawn = np.where(mine, rng.choice(len(words), length, p=shares[t]), rng.choice(len(words), length, p=base))
        texts.append(" ".join(words[drawn]))
    return pd.DataFrame({"text": texts, "topic": np.array(TOPICS)[topic]})


def embeddings(rows: int = 2_000, seed: int = 0) -> pd.DataFrame:
    """Return vectors of 384 numbers and of length 1, as of sentences, a category, and one of twelve intents."""
    rng = np.random.default_rng(seed)
    intent, source = rng.integers(0, 12, rows), rng.integers(0, 4, rows)
    low = rng.normal(size=(rows, 40)) * np.linspace(2.0, 0.3, 40)
    means = rng.normal(0, 0.5, (12, 40))
    shift = rng.normal(0, 0.5, (4, 40))
    lifted = (low + means[intent] + shift[source]) @ rng.normal(size=(40, 384)) / 6 + rng.normal(0, 0.3, (rows, 384))
    vectors = (lifted / np.linalg.norm(lifted, axis=1, keepdims=True)).astype(np.float32)
    return pd.DataFrame(
        {
            "embedding": list(vectors),
            "source": np.array(["mail", "chat", "form", "phone"])[source],
            "intent": np.array([f"intent {i:02d}" for i in range(12)])[intent],
        }
    )


def _words(rng: np.random.Generator, number: int) -> np.ndarray:
    """Return made-up words, some of them more than once."""
    syllables = np.array(
        ["ka", "lo", "mi", "ra", "ten", "vo", "shi", "ber", "dal", "son", "pe", "ru", "gan", "ti", "mo"]
    )
    return np.array(["".join(rng.choice(syllables, rng.integers(2, 5))) for _ in range(number)])


class Set(NamedTuple):
    """Rows with their target.

    frame: columns and target, or the target alone where rows are sparse.
    target: name of the target's column.
    suffix: of the file.
    bar: what the score may lack of the best pipeline's; None where no bar is set.
    sparse: rows (rows, features).
    """

    frame: pd.DataFrame
    target: str
    suffix: str
    bar: float | None = None
    sparse: sp.csr_matrix | None = None

    @property
    def rows(self) -> Any:
        """Rows to predict, without their target."""
        return self.frame.drop(columns=self.target) if self.sparse is None else self.sparse


def _shipped(name: str) -> Set:
    bunch = getattr(datasets, f"load_{name}")(as_frame=True)
    frame = bunch.data.assign(y=bunch.target)
    if name == "diabetes":
        frame["y"] = np.log(frame["y"])  # numbers, with a fraction
    return Set(frame, "y", ".csv")


def _wide() -> Set:
    blocks = list(generate_rcv1_like(5_000, "top4"))
    topics = [label for block in blocks for label in block.y.targets_by_row()]
    frame = pd.DataFrame({"y": pd.Series(topics).map({name: i for i, name in enumerate(sorted(set(topics)))})})
    return Set(frame, "y", ".svm", sparse=sp.vstack([block.X for block in blocks], "csr"))


MADE: dict[str, Callable[[int], Set]] = {
    "table": lambda rows: Set(mixed_table(rows), "channel", ".csv", bar(rows)),
    "documents": lambda rows: Set(documents(rows), "topic", ".jsonl", 0.03),
    "embeddings": lambda rows: Set(embeddings(rows), "intent", ".parquet", bar(rows)),
}
"""Sets that are made here, by name."""
SHIPPED: dict[str, Callable[[], Set]] = {
    "wide": _wide,
    **{name: lambda name=name: _shipped(name) for name in ("iris", "wine", "breast_cancer", "digits", "diabetes")},
}
"""Sets that ship, by name."""


def bar(rows: int) -> float:
    """Return what the score of a made set of this many rows may lack of the best pipeline's."""
    return 0.01 if rows >= 20_000 else 0.02


def pipelines(given: Set) -> dict[str, Any]:
    """Return scikit-learn's pipelines for a set, by the names of their last steps."""
    if given.frame[given.target].dtype == np.float64:
        return _named((StandardScaler(),), [LinearRegression(), Ridge(), LassoCV()])
    linear = [LogisticRegression(max_iter=1_000), LinearSVC(), RidgeClassifier()]
    dense = [LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"), GaussianNB()]
    if given.sparse is not None:
        return _named((), linear)
    if "text" in given.frame:
        # These two need dense rows, of which all words would take gigabytes.
        few = (TfidfVectorizer(max_features=1_000), FunctionTransformer(methodcaller("toarray"), accept_sparse=True))
        return _named((TfidfVectorizer(),), linear) | _named(few, dense)
    return _named((_columns(),), linear + dense)


def _named(steps: tuple[Any, ...], models: list[Any]) -> dict[str, Any]:
    return {type(model).__name__: make_pipeline(*steps, model) for model in models}


def _columns() -> Any:
    numbers = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    return make_column_transformer(
        (numbers, make_column_selector(dtype_include="number")),
        (OneHotEncoder(handle_unknown="ignore"), make_column_selector(dtype_exclude="number")),
        sparse_threshold=0,
    )


def prepared(given: Set) -> Any:
    """Return rows as scikit-learn's user hands them over.

    The id and the note are left out, a date is a number of days, and a vector is a column for each number.
    """
    frame = given.rows
    if given.sparse is not None:
        return frame
    if "text" in frame:
        return frame["text"].to_numpy()
    if "embedding" in frame:
        vectors = pd.DataFrame(np.stack(frame["embedding"])).add_prefix("e")
        return pd.concat([vectors, frame.drop(columns="embedding").reset_index(drop=True)], axis=1)
    if "day" in frame:
        return frame.drop(columns=["order_id", "note"]).assign(day=frame["day"].astype("datetime64[s]").astype("int64"))
    return frame


def taken(rows: Any, numbers: np.ndarray) -> Any:
    """Return the rows of these numbers."""
    return rows.iloc[numbers] if hasattr(rows, "iloc") else rows[numbers]


def learned(given: Set, rows: np.ndarray, more: list[str]) -> Any:
    """Return the estimator that `stream-dr learn` makes of a file of these rows.

    Raises RuntimeError where it refuses the file.
    """
    with tempfile.TemporaryDirectory() as folder:
        file, directory = Path(folder, f"rows{given.suffix}"), Path(folder, "d")
        train, how = given.frame.iloc[rows], ["--label", given.target]
        if given.sparse is not None:
            datasets.dump_svmlight_file(given.sparse[rows], train[given.target], str(file), zero_based=False)
            how = ["--n-features", str(given.sparse.shape[1])]
        elif given.suffix == ".csv":
            train.to_csv(file, index=False)
        elif given.suffix == ".jsonl":
            train.to_json(file, orient="records", lines=True)
        else:
            train.to_parquet(file, index=False)
        command = ["-m", "stream_dr", "learn", str(file), *how, "--dir", str(directory), *more]
        done = subprocess.run([sys.executable, *command], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr.strip().splitlines()[-1])
        with stream_dr.Directory(directory, writable=False) as opened:
            (model,) = opened.models.values()
            return stream_dr.load(stream_dr.export_model(model))


class Outcome(NamedTuple):
    """Means over the folds of one set.

    method: what `learn` took without being asked, and its solution.
    ours: its score, NaN where `error` says why there is none.
    best: name of the best pipeline.
    theirs: its score.
    """

    name: str
    rows: int
    bar: float | None
    method: str
    ours: float
    best: str
    theirs: float
    error: str = ""

    @property
    def within(self) -> bool:
        """True if the score lacks at most the bar."""
        return self.bar is None or self.ours >= self.theirs - self.bar


def measured(name: str, given: Set, folds: int = 5, more: list[str] | None = None) -> Outcome:
    """Score `learn` and the pipelines on the first folds of five."""
    y = given.frame[given.target].to_numpy()
    numbers = y.dtype == np.float64
    score = r2_score if numbers else lambda truth, predicted: float(np.mean(truth == predicted))
    split = (KFold if numbers else StratifiedKFold)(5, shuffle=True, random_state=0)
    ours: list[float] = []
    theirs: dict[str, list[float]] = {}
    method, error, columns = "", "", prepared(given)
    for train, test in list(split.split(given.frame, y))[:folds]:
        try:
            model = learned(given, train, more or [])
            method = f"{type(model).__name__} {model.solution_}"
            ours.append(score(y[test], model.predict(taken(given.rows, test))))
        except (RuntimeError, stream_dr.errors.StreamDRError) as e:
            error = str(e)
            ours.append(float("nan"))
        for pipeline, steps in pipelines(given).items():
            steps.fit(taken(columns, train), y[train])
            theirs.setdefault(pipeline, []).append(score(y[test], steps.predict(taken(columns, test))))

    means = {pipeline: float(np.mean(values)) for pipeline, values in theirs.items()}
    best = max(means, key=means.__getitem__)
    return Outcome(name, len(y), given.bar, method, float(np.mean(ours)), best, means[best], error)


def table(outcomes: Iterator[Outcome]) -> Iterator[str]:
    """Yield a line for each set as soon as it is measured, and how many made sets are within their bars."""
    yield f"{'set':<14} {'rows':>6} {'ours':>7} {'best':>7} {'difference':>11} {'bar':>5}  ours, best"
    made = []
    for o in outcomes:
        may = "" if o.bar is None else f"{o.bar:.2f}"
        yield (
            f"{o.name:<14} {o.rows:6} {o.ours:7.4f} {o.theirs:7.4f} {o.ours - o.theirs:+11.4f} {may:>5}  "
            f"{o.error or o.method}, {o.best}"
        )
        made += [o] if o.bar is not None else []
    yield f"{sum(o.within for o in made)} of {len(made)} made sets within their bars of the best pipeline"


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    given = argparse.ArgumentParser()
    given.add_argument("sets", nargs="*", help=f"of {', '.join([*MADE, *SHIPPED])}; all by default")
    given.add_argument("--rows", type=int, nargs="+", default=list(SIZES), help="of the made sets")
    given.add_argument("--folds", type=int, default=5)
    given.add_argument("--model", help="name one, to compare with what is taken without")
    options = given.parse_args(arguments)
    names = options.sets or [*MADE, *SHIPPED]
    if unknown := set(names) - {*MADE, *SHIPPED}:
        given.error(f"no set is called {', '.join(unknown)}; sets are {', '.join([*MADE, *SHIPPED])}")
    more = ["--model", options.model] if options.model else []
    chosen = [(name, MADE[name], (rows,)) for name in names if name in MADE for rows in options.rows]
    chosen += [(name, SHIPPED[name], ()) for name in names if name in SHIPPED]
    for line in table(measured(name, make(*size), options.folds, more) for name, make, size in chosen):
        print(line, flush=True)


if __name__ == "__main__":
    main()
