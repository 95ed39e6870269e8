"""Replacement of layers in models of other packages, with one module for each package.

Each module has three functions: ``prepare(model)`` returns (name, owner, problem) of the layers that can be swapped,
``swap(owner, problem)`` swaps one, and ``undo(model)`` restores all and returns their names. Swapping changes the class
of a layer to a subclass. The layer stays the same object with the same state, so references to it remain valid.
"""
