"""Fast tests with several Pythons, and with the oldest and newest releases in range: ``python -m scripts.matrix``."""
