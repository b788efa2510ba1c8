"""Imported once by the fork server: what the processes of `forked` use."""

import stream_dr
from stream_dr.directory import backup, directory, verify  # noqa: F401
from stream_dr.estimators import ESTIMATORS
from stream_dr.running import running  # noqa: F401

for name in ESTIMATORS:
    ESTIMATORS[name]
stream_dr.warm_up([ESTIMATORS["lda"](), ESTIMATORS["class_means"]()])
