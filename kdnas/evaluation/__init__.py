"""Evaluation of students: fine-tuning on the tasks of a suite, metrics and reports."""
