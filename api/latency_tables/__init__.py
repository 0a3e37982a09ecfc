"""Latency tables, and their building."""
