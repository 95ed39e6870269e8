"""Where a kernel's time goes, modelled.

recorded program -> costs of instructions -> schedule on the engines -> summary
"""
