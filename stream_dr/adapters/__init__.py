"""Adapters of estimators to other libraries, and a report on tables."""
