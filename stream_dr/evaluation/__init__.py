"""How good a projection is: test-then-train, probes, scores."""
