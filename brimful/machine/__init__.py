"""The machines that training will run on: what they have, and how fast their parts are."""
