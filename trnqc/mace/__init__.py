"""Whole MACE models, evaluated by generated kernels without PyTorch: energies, forces and stress.

torch file -> reader -> description (model.py)
"""
