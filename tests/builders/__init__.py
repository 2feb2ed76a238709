"""What several test files build: data, models, trainers, processes."""
