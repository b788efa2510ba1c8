"""Adapters of estimators to other libraries, and a report on the columns of a table."""
