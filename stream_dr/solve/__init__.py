"""State → Projection: pure functions of arrays."""
