"""Distillation: many students on one teacher pass, and one student to the end."""
