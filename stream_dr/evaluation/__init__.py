"""Evaluation of methods and projections on rows that they have not learned."""
