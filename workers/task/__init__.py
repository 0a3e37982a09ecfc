"""Distillation for one task, as work: a request checked, its teacher ready, its runs done."""
