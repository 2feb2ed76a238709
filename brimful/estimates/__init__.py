"""What a pretraining run will take, before it is started: time, memory, traffic between ranks, disk.

Everything is derived from the run's own settings, a GPU's data sheet or a short measurement, and the
assumptions of assumptions.py, each of which has a name and can be replaced.
"""
