"""Inputs of examples that benchmarks and tests use too: sparse tensors, helium lattices, atomistic models."""
