"""The instructions of `nki.isa`, with one module for each engine or family of instructions.

operands -> checks (`checks`) -> record in the run in progress -> arithmetic in fp32 -> result, rounded once

Argument names are the vendor's. Operands that the machine does not support raise `NkiValidationError`. The optional
``name`` of every instruction labels it in reports.
"""
