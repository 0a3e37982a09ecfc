"""What is kept: tables, migrations, and all SQL of the program (SQLite and PostgreSQL)."""
