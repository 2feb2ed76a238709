"""Where tasks run, and what happens when one hangs or dies."""
