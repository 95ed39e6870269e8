"""What is known of other packages' models, one module a package: where their convolutions are and how they are called.

Each has ``prepare(model)``, the (name, layer, problem) that can be swapped, ``swap(layer, problem)`` and
``undo(model)``, the names of what was put back. A layer is swapped by giving it a subclass of its class: it stays the
same object with the same state, so that nothing that holds it needs to know.
"""
