"""Pipelines: search, distillation and evaluation as one request."""
