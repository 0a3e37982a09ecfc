"""What only tests use: makers of small teachers, tokenizers and corpora, fakes, contract suites."""
