"""Cutting stock: its linear program, the knapsacks in it, rounding, and the plan that comes out."""
