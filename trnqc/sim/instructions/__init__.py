"""The instructions of `nki.isa`, a module for each engine or family.

operands -> checks (`checks`) -> announced to the run in progress -> computed in fp32 -> stored with one rounding
"""
