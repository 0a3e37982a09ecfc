"""Evaluation of students: fine-tuning on the tasks of a suite, metrics and reports.

What several rooms hand each other is here: settings, results, figures of size and speed.
"""
