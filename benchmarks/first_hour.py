"""The first hour: `stream-dr learn` of a file without a model named, beside scikit-learn's best of five pipelines.

    python -m benchmarks.first_hour [SET …] [--folds 5] [--rows N] [--model NAME=KEY…]

Three made sets (seeded): a table with gaps and dates (CSV and Parquet), JSON lines of documents of eight topics, Parquet of
embeddings of 384 numbers beside a category; and what ships: sparse rows like RCV1's, and scikit-learn's sets. Of each,
fifths are held out: the command line learns a file of the rest, and its model predicts; five simple pipelines learn the same
rows. Accuracy, or R2 of numbers. scikit-learn's user drops the id and makes of a date its day and month; by the command line
the file is read as it is.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp
from sklearn import datasets
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.decomposition import TruncatedSVD
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LassoCV, LinearRegression, LogisticRegression, Ridge, RidgeClassifier
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.naive_bayes import ComplementNB
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC

import stream_dr
from stream_dr.datasets.generate import rcv1_like

TOPICS = ("sport", "money", "health", "travel", "food", "science", "music", "law")
BAR = 0.01
"""What the made sets may lack of the best pipeline's accuracy."""


def mixed_table(rows: int = 6_000, seed: int = 0) -> pd.DataFrame:
    """Orders with gaps, categories, a date and an id; `channel` of three by a noisy rule of them, gaps among its reasons."""
    rng = np.random.default_rng(seed)
    cities = np.array([f"city {i:02d}" for i in range(40)])
    city = rng.choice(40, rows, p=rng.dirichlet(np.full(40, 2.0)))
    plan = rng.choice(["free", "basic", "plus", "team"], rows, p=[0.4, 0.3, 0.2, 0.1])
    age, visits = np.clip(rng.normal(42, 14, rows), 18, 90).round(), rng.poisson(4, rows)
    spent = np.exp(rng.normal(3 + 0.5 * (plan == "team") + 0.2 * (plan == "plus"), 0.7)).round(2)
    day = rng.integers(0, 3 * 365, rows)
    rated = rng.random(rows) < 0.7
    rating = np.where(rated, rng.integers(1, 6, rows), np.nan)

    season, taste = np.sin(2 * np.pi * day / 365.25), rng.normal(0, 0.8, 40)
    app = 0.06 * (42 - age) + 1.2 * (plan == "plus") + 0.8 * season + taste[city]
    phone = 0.05 * (age - 42) - 0.5 * season + 1.2 * ~rated
    web = 0.15 * (visits - 4) + 0.6 * np.log(spent) - 1.8 + 0.4 * np.nan_to_num(rating - 3)
    scores = 1.5 * np.column_stack([app, phone, web]) + rng.gumbel(size=(rows, 3))
    return pd.DataFrame(
        {
            "order_id": [f"A{i:06d}" for i in rng.permutation(rows)],
            "age": np.where(rng.random(rows) < 0.15, np.nan, age),
            "plan": pd.Series(plan).where(rng.random(rows) > 0.05),
            "city": cities[city],
            "day": pd.to_datetime("2022-01-01") + pd.to_timedelta(day, "D"),
            "visits": visits,
            "spent": np.where(rng.random(rows) < 0.1, np.nan, spent),
            "rating": rating,
            "channel": np.array(["app", "phone", "web"])[scores.argmax(1)],
        }
    )


def documents(rows: int = 4_000, seed: int = 0) -> pd.DataFrame:
    """Documents of eight topics: words by Zipf's law, a few of each by its topic."""
    rng = np.random.default_rng(seed)
    syllables = np.array(
        ["ka", "lo", "mi", "ra", "ten", "vo", "shi", "ber", "dal", "son", "pe", "ru", "gan", "ti", "mo"]
    )
    words = np.array(["".join(rng.choice(syllables, rng.integers(2, 5))) for _ in range(20_000)])
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


def embeddings(rows: int = 6_000, seed: int = 0) -> pd.DataFrame:
    """Vectors of 384 numbers of length 1, as of sentences, a category beside them, and an intent of twelve."""
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


class Set(NamedTuple):
    """frame: rows with their target, or that alone. target: its column. suffix: of its file. made: by a generator of this
    file. sparse: the rows (rows, features), where the frame has none."""

    frame: pd.DataFrame
    target: str
    suffix: str
    made: bool = False
    sparse: sp.csr_matrix | None = None

    @property
    def rows(self) -> Any:
        """The rows as they are predicted, without their target."""
        return self.frame.drop(columns=self.target) if self.sparse is None else self.sparse


def _shipped(name: str) -> Set:
    bunch = getattr(datasets, f"load_{name}")(as_frame=True)
    frame = bunch.data.assign(y=bunch.target)
    if name == "diabetes":
        frame["y"] = np.log(frame["y"])  # numbers, with a fraction
    return Set(frame, "y", ".csv")


def _wide(rows: int = 5_000) -> Set:
    blocks = list(rcv1_like(rows, "top4"))
    topics = [label for block in blocks for label in block.y.row_labels()]
    frame = pd.DataFrame({"y": pd.Series(topics).map({name: i for i, name in enumerate(sorted(set(topics)))})})
    return Set(frame, "y", ".svm", sparse=sp.vstack([block.X for block in blocks], "csr"))


def sets(rows: int | None = None) -> dict[str, Callable[[], Set]]:
    """What makes each set. rows: of the made ones."""
    size = {} if rows is None else {"rows": rows}
    made: dict[str, Callable[[], Set]] = {
        "table csv": lambda: Set(mixed_table(**size), "channel", ".csv", True),
        "table parquet": lambda: Set(mixed_table(**size), "channel", ".parquet", True),
        "documents": lambda: Set(documents(**size), "topic", ".jsonl", True),
        "embeddings": lambda: Set(embeddings(**size), "intent", ".parquet", True),
    }
    made["wide"] = lambda: _wide(**size)
    shipped = ("iris", "wine", "breast_cancer", "digits", "diabetes")
    return made | {name: lambda name=name: _shipped(name) for name in shipped}  # type: ignore[misc]


def pipelines(given: Set) -> dict[str, Any]:
    """scikit-learn's five."""
    if given.frame[given.target].dtype == np.float64:
        models = [
            LinearRegression(),
            Ridge(),
            LassoCV(),
            KNeighborsRegressor(15),
            RandomForestRegressor(random_state=0),
        ]
        return {type(model).__name__: make_pipeline(StandardScaler(), model) for model in models}
    if given.sparse is not None or "text" in given.frame:
        weights = [TfidfVectorizer()] if given.sparse is None else []
        svd = make_pipeline(TruncatedSVD(100, random_state=0), LogisticRegression(max_iter=1_000))
        words: list[Any] = [LogisticRegression(max_iter=1_000), RidgeClassifier(), LinearSVC(), ComplementNB(), svd]
        names = ("LogisticRegression", "RidgeClassifier", "LinearSVC", "ComplementNB", "TruncatedSVD")
        return {name: make_pipeline(*weights, model) for name, model in zip(names, words, strict=True)}
    rest = [LinearDiscriminantAnalysis(), KNeighborsClassifier(15), RandomForestClassifier(random_state=0, n_jobs=-1)]
    models = [LogisticRegression(max_iter=1_000), RidgeClassifier(), *rest]
    return {type(model).__name__: make_pipeline(_columns(), model) for model in models}


def _columns() -> Any:
    numbers = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    return make_column_transformer(
        (numbers, make_column_selector(dtype_include="number")),
        (OneHotEncoder(handle_unknown="ignore"), make_column_selector(dtype_exclude="number")),
        sparse_threshold=0,
    )


def prepared(given: Set) -> Any:
    """Rows as scikit-learn's user hands them over: no id, days and months of a date, a column a number of a vector."""
    frame = given.rows
    if given.sparse is not None:
        return frame
    if "text" in frame:
        return frame["text"].to_numpy()
    if "embedding" in frame:
        vectors = pd.DataFrame(np.stack(frame["embedding"])).add_prefix("e")
        return pd.concat([vectors, frame.drop(columns="embedding").reset_index(drop=True)], axis=1)
    if "day" in frame:
        day = frame["day"]
        frame = frame.drop(columns=["order_id", "day"]).assign(
            days=day.astype("int64") / 8.64e13, month=day.dt.month_name()
        )
    return frame


def taken(rows: Any, numbers: np.ndarray) -> Any:
    """The rows of those numbers."""
    return rows.iloc[numbers] if hasattr(rows, "iloc") else rows[numbers]


def learned(given: Set, rows: np.ndarray, more: list[str]) -> Any:
    """The estimator that `stream-dr learn` has made of a file of these rows. Raises RuntimeError where it refuses it."""
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
    """Of one set, means over folds. method: what was taken without being named, of the score ours. best: the best pipeline,
    of the score theirs. why: the error."""

    name: str
    made: bool
    method: str
    ours: float
    best: str
    theirs: float
    why: str = ""

    @property
    def within(self) -> bool:
        """Whether ours lacks at most BAR."""
        return self.ours >= self.theirs - BAR


def measured(name: str, given: Set, folds: int = 5, more: list[str] | None = None) -> Outcome:
    """Ours and the best of five on the first `folds` fifths."""
    y = given.frame[given.target].to_numpy()
    numbers = y.dtype == np.float64
    score = r2_score if numbers else lambda truth, found: float(np.mean(truth == found))
    split = (KFold if numbers else StratifiedKFold)(5, shuffle=True, random_state=0)
    figures: dict[str, list[float]] = {}
    method, why = "", ""
    for train, test in list(split.split(given.frame, y))[:folds]:
        try:
            model = learned(given, train, more or [])
            method, found = f"{type(model).__name__} {model.solution_}", model.predict(taken(given.rows, test))
        except (RuntimeError, stream_dr.errors.StreamDRError) as e:
            why, found = str(e), np.full(len(test), np.nan)
        figures.setdefault("", []).append(score(y[test], found) if not why else float("nan"))
        columns = prepared(given)
        for pipeline, made in pipelines(given).items():
            made.fit(taken(columns, train), y[train])
            figures.setdefault(pipeline, []).append(score(y[test], made.predict(taken(columns, test))))
    means = {pipeline: float(np.mean(values)) for pipeline, values in figures.items()}
    ours = means.pop("")
    best = max(means, key=means.__getitem__)
    return Outcome(name, given.made, method, ours, best, means[best], why)


def table(outcomes: Iterator[Outcome]) -> Iterator[str]:
    """A line a set, as soon as it is measured, and the bar."""
    yield f"{'set':<14} {'ours':>7} {'best of five':>13}  {'difference':>10}  ours, best"
    made = []
    for o in outcomes:
        yield f"{o.name:<14} {o.ours:7.4f} {o.theirs:13.4f}  {o.ours - o.theirs:+10.4f}  {o.method or o.why}; {o.best}"
        made += [o] if o.made else []
    yield f"{sum(o.within for o in made)} of {len(made)} made sets within {BAR} of the best pipeline"


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    given = argparse.ArgumentParser()
    given.add_argument("sets", nargs="*")
    given.add_argument("--folds", type=int, default=5)
    given.add_argument("--rows", type=int)
    given.add_argument("--model", help="name one, to compare with what is taken without")
    options = given.parse_args(arguments)
    every = sets(options.rows)
    names = options.sets or list(every)
    if unknown := set(names) - set(every):
        given.error(f"no set is called {', '.join(unknown)}; sets are {', '.join(every)}")
    more = ["--model", options.model] if options.model else []
    for line in table(measured(name, every[name](), options.folds, more) for name in names):
        print(line, flush=True)


if __name__ == "__main__":
    main()
