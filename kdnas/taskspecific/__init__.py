"""Distillation for one task: Universal-KD and the baselines it is measured against."""
