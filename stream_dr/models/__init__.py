"""Models: their specs and states, their snapshots, and the projections they publish."""
