"""Modelled figures: kernels by the timeline model, its calibration, and projections to many ranks."""
