"""Costs of plans: symbolic operation counts, and estimated seconds from the rates of this machine."""
