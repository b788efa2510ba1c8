"""Refine beside LSQR in memory: passes, products and angle to the converged solution, on 20 Newsgroups (tf-idf).

    STREAM_DR_DATA=… python benchmarks/refine.py [--gammas 1,0.01] [--passes 40]

For each γ: passes of block conjugate gradient until the angle to LSQR's solution (the two-stage paper's choice, one column
after the other on the centred matrix in memory, run to 1e-12) is below 1e-3 and 1e-6 rad, beside the largest number of
iterations LSQR needed for one column; each of those is a pass over the rows too.
"""

import argparse
import tempfile
import time

import numpy as np
import scipy.sparse as sp

from benchmarks.news20 import tfidf_shards
from benchmarks.papers.two_stage_methods import by_lsqr
from stream_dr.estimators import make
from stream_dr.estimators.fitting.refining import refine_steps
from stream_dr.shards.dataset import Dataset
from stream_dr.solve.conjugate_gradient import largest_angle


def in_memory(dataset: Dataset, gamma: float) -> tuple[np.ndarray, int]:
    """LDA's loadings by LSQR a column, and the most iterations one took."""
    blocks = [block for _, block in dataset.events()]
    X = sp.vstack([b.X for b in blocks], format="csr")
    y = np.array([label for b in blocks for label in b.y.row_labels()])
    classes, codes = np.unique(y, return_inverse=True)
    H = np.eye(len(classes))[codes] / np.sqrt(np.bincount(codes))
    found, iterations = by_lsqr(X, H - H.mean(0), gamma, tol=1e-12, most=2_000)
    return found[:, : len(classes) - 1], iterations


def main() -> None:
    """Print one line a γ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gammas", default="1,0.01")
    parser.add_argument("--passes", type=int, default=40)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        dataset, _ = tfidf_shards(folder)
        for gamma in (float(text) for text in given.gammas.split(",")):
            began = time.perf_counter()
            reference, iterations = in_memory(dataset, gamma)
            print(f"gamma {gamma:g}: LSQR up to {iterations} iterations a column, {time.perf_counter() - began:.0f} s")
            lda = make("lda", {"gamma": gamma})
            learner = lda.accumulator()
            for _, block in dataset.events():
                learner.add(block)
            reached: dict[float, int] = {}
            began = time.perf_counter()
            for step in refine_steps(lda, learner.freeze(), dataset, tol=0.0, max_passes=given.passes):
                off = largest_angle(reference, step.projection.loadings)
                for bound in (1e-3, 1e-6):
                    if off < bound and bound not in reached:
                        reached[bound] = step.report.number
                        told = f"residual {step.report.residual:.1e}, angle between passes {step.report.angle:.1e}"
                        print(f"  {bound:g} rad after {step.report.number} passes ({told})", flush=True)
                if len(reached) == 2:
                    break
            print(f"  last: {off:.1e} rad after {step.report.number} passes, {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
