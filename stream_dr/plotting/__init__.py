"""Plotting: functions that return plotly Figures, one for each figure.

In a notebook, call for example `stream_dr.plotting.projection(lda, X, y)`. The same functions draw
for `stream-dr plot`, `stream-dr report` and the service's dashboard.

Names, labels and errors are shown as plain text. Characters in them that plotly would interpret as
markup are escaped.
"""

from stream_dr.plotting.projection_figures import loadings as loadings
from stream_dr.plotting.projection_figures import projection as projection
from stream_dr.plotting.projection_figures import regularisation as regularisation
from stream_dr.plotting.projection_figures import spectrum as spectrum
from stream_dr.plotting.record_figures import convergence as convergence
from stream_dr.plotting.record_figures import drift as drift
from stream_dr.plotting.record_figures import progress as progress

__all__ = ["convergence", "drift", "loadings", "progress", "projection", "regularisation", "spectrum"]
