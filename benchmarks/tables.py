"""Raw tables side by side with scikit-learn: table → LDA → logistic regression, and ColumnTransformer → LDA → logistic
regression, 5-fold accuracy.

    python benchmarks/tables.py [--csv titanic.csv --label survived]

Without --csv the table is made by a fixed seed, with the 14 columns of the Titanic's passenger list, their kinds, gaps and
numbers of values, and a made-up rule of survival: figures of it are no figures of the Titanic's.
"""

import argparse
import time
import warnings

import numpy as np
import pandas as pd
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import stream_dr

SYLLABLES = ["ka", "lo", "mi", "ra", "ten", "vo", "shi", "ber", "dal", "son"]


def passengers(rows: int = 1309, seed: int = 0) -> tuple[pd.DataFrame, pd.Series]:
    """The made-up list and who survived."""
    rng = np.random.default_rng(seed)
    pclass = rng.choice([1, 2, 3], rows, p=[0.25, 0.21, 0.54])
    sex = np.where(rng.random(rows) < 0.36, "female", "male")
    age = np.clip(rng.normal(44 - 5 * pclass, 13), 0.5, 80).round(1)
    sibsp, parch = rng.poisson(0.5, rows), rng.poisson(0.4, rows)
    embarked = rng.choice(["S", "C", "Q"], rows, p=[0.7, 0.2, 0.1])
    odds = (
        -1.0 + 2.5 * (sex == "female") + 0.9 * (2 - pclass) - 0.02 * (age - 30) + 0.3 * (embarked == "C") - 0.2 * sibsp
    )
    survived = rng.random(rows) < 1 / (1 + np.exp(-odds))
    title = np.where(sex == "female", rng.choice(["Miss.", "Mrs."], rows), np.where(age < 14, "Master.", "Mr."))

    def word() -> str:
        return "".join(rng.choice(SYLLABLES, 3)).title()

    def some(values: list[str], share: np.ndarray | float) -> list[str | None]:
        return [v if there else None for v, there in zip(values, rng.random(rows) < share, strict=True)]

    rooms = zip(rng.choice(list("ABCDE"), rows), rng.integers(1, 60, rows), strict=True)
    homes = [f"{word()}, {town}" for town in rng.choice(["NY", "Cork", "Oslo"], rows)]
    table = pd.DataFrame(
        {
            "pclass": pclass,
            "name": [f"{word()}, {t} {word()} {word()}" for t in title],
            "sex": sex,
            "age": np.where(rng.random(rows) < 0.2, np.nan, age),
            "sibsp": sibsp,
            "parch": parch,
            "ticket": [f"{rng.choice(['PC ', 'CA ', '', ''])}{v}" for v in rng.integers(1000, 1950, rows)],
            "fare": np.exp(rng.normal(5.2 - 0.85 * pclass, 0.5)).round(4),
            "cabin": some([f"{c}{i}" for c, i in rooms], np.where(pclass == 1, 0.7, 0.08)),
            "embarked": some(embarked.tolist(), 0.998),
            "boat": some([str(v) for v in rng.integers(1, 17, rows)], np.where(survived, 0.95, 0.0)),
            "body": np.where(~survived & (rng.random(rows) < 0.15), rng.integers(1, 330, rows), np.nan),
            "home.dest": some(homes, 0.57),
        }
    )  # fmt: skip
    return table, pd.Series(survived.astype(int), name="survived")


def main() -> None:
    """Print the report of the columns and both accuracies, with and without the columns that tell the answer."""
    given = argparse.ArgumentParser()
    given.add_argument("--csv")
    given.add_argument("--label", default="survived")
    options = given.parse_args()
    X, y = passengers()
    if options.csv:
        X = pd.read_csv(options.csv)
        y = X.pop(options.label)
    report = stream_dr.describe_table(X)
    print(report, f"\n{report.used} of {len(X.columns)} columns are used")
    numbers = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    categories = OneHotEncoder(handle_unknown="ignore", min_frequency=5, sparse_output=False)
    fields = make_column_transformer(
        (numbers, make_column_selector(dtype_include="number")),
        (categories, make_column_selector(dtype_exclude="number")),
    )
    last = LogisticRegression(max_iter=1000)
    ways = {
        "ColumnTransformer, LDA": make_pipeline(fields, LinearDiscriminantAnalysis(), last),
        "table, LDA": make_pipeline(stream_dr.LDA(feature_map=stream_dr.table()), last),
        "table, LDA(gamma=1)": make_pipeline(stream_dr.LDA(gamma=1.0, feature_map=stream_dr.table()), last),
        "table(n_hashed=1), LDA": make_pipeline(stream_dr.LDA(feature_map=stream_dr.table(n_hashed=1)), last),
    }
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    for columns in (list(X), [c for c in X if c not in ("boat", "body")]):
        for name, way in ways.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                begun = time.perf_counter()
                scores = cross_val_score(way, X[columns], y, cv=folds)
            seconds = time.perf_counter() - begun
            print(f"{len(columns)} columns, {name}: {scores.mean():.4f} ± {scores.std():.4f}, {seconds:.1f} s")


if __name__ == "__main__":
    main()
