"""Weights of edges as splines of their lengths.

knots.py      B-splines of an edge
weights.py    the program that computes weights from tables
sampling.py   exact weights at some lengths; fitting.py fits splines to them
tables.py     the tables of a model
"""
