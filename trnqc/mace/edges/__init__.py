"""Edges of a MACE model: neighbour lists, radial functions, spherical harmonics and convolutions.

vectors -> `geometry` -> harmonics and radial basis of each edge
features x, geometry -> `layer` -> A[node] = sum over the edges of the node of w(r) Y x[sender]
gradient of A -> `layer` -> gradients of x, of the harmonics and of the lengths -> `geometry` -> gradient of the vectors
"""
