"""Distillations for one task: methods and seeds of one teacher and one student."""
