"""Plotting: functions that return plotly Figures, one for each figure.

In a notebook, call for example `stream_dr.plotting.projection(lda, X, y)`. The same functions draw
for `stream-dr plot`, `stream-dr report` and the service's dashboard.

Names, labels and errors are shown as plain text. Characters in them that plotly would interpret as
markup are escaped.
"""

from stream_dr.plotting.projection_figures import loadings, projection, regularisation, spectrum
from stream_dr.plotting.record_figures import convergence, drift, progress

__all__ = ["convergence", "drift", "loadings", "progress", "projection", "regularisation", "spectrum"]
