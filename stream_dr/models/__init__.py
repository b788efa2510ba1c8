"""Models: specs, states, snapshots and published projections."""
