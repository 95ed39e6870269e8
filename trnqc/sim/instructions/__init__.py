"""The instructions of `nki.isa`, a module for each engine or family, and the operand rules that they share."""
