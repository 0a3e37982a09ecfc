"""From files and data sets to the examples of a task."""
