"""The tests' own number of BLAS threads."""

import os

import numpy as np
import scipy.linalg
from threadpoolctl import threadpool_info


def test_blas_has_the_threads_that_the_environment_allows() -> None:
    scipy.linalg.cholesky(np.eye(2))
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    allowed = int(os.environ.get("OPENBLAS_NUM_THREADS") or os.environ["OMP_NUM_THREADS"])
    assert all(pool["num_threads"] <= allowed for pool in pools), pools
