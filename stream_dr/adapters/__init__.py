"""Estimators in other libraries' clothes."""
