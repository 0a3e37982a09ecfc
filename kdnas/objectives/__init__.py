"""What a student learns from its teacher: one objective a file, behind one contract."""
