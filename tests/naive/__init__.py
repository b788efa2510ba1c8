"""The obvious, slow version of everything; the tests compare the product with it."""
