"""The machine that training will run on: what it has, and how fast its parts are."""
