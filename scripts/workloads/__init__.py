"""Inputs and references that benchmarks and tests share."""
