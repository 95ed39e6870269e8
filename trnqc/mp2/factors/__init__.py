"""Fitted three-index factors B[i, a, Q] in memory, on disk and over ranks.

integrals (mu nu|P) by blocks of shells -> (ia|P) -> metric (P|Q)^-1/2 -> B
"""
