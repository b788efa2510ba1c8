"""Evaluation of methods and projections on rows not learned."""
