"""The stages of a preparation, and what they leave on disk for one another."""
