"""Densities, gradients and geometries of DF-MP2, checked and timed.

molecules           the molecules of the checks
methods             energies, gradients and dipoles of one molecule as functions of its geometry and of a field
finite_differences  analytic gradients and dipoles beside differences of energies (run as a module)
geometries          optimised geometries (run as a module)
contestants         what scripts/bench_mp2_properties.py times, each kind in a process of its own
"""
