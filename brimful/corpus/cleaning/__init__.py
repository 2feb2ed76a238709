"""A raw text -> clean documents."""
