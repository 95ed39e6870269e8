"""Costs of plans: symbolic operation counts, and the measured rates of this machine."""
