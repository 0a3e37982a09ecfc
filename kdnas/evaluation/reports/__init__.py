"""Scores of models side by side, beside those that papers report."""
