"""Models: from a model's entry in the table to what it has published."""
