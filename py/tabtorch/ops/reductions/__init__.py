"""Reductions, running ones, sorting, and what is made of them."""
