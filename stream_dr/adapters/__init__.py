"""Adapters of estimators to other libraries, and a table report."""
