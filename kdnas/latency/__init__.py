"""Latency of students: measured whole, or modelled from blocks; one table a profile."""
