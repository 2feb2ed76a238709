"""A CUDA device that computes nothing and records everything: recorder.c says what it does and refuses.

`device` builds it and makes processes that run on it; `record` reads what it recorded, inside such a process.
"""
