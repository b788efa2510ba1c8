"""Comparison of methods and projections by rows that they have not learned."""
