"""A model of the time that a kernel spends on each engine of a NeuronCore.

recorded program -> costs of instructions -> schedule on the engines -> summary
"""
