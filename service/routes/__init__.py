"""Routes, by concern: learn (partial_fit, unlearn), project (transform), models, jobs, stream (what there is, health)."""
