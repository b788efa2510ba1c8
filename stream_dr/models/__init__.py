"""models: one model's life, from its entry in the table to what it has published."""
