"""Stage 3: where each array lies on a grid of processors, and what has to move between steps.

tree + grid -> placements -> the distribution of least computation and communication
"""
