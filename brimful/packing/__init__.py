"""Packing: which sequences share a row. A library of its own, for lengths of any kind (numpy, scipy, numba).

    counts = count_lengths(lengths)                      # histogram.py
    plan = cutting_stock(counts, capacity=512)           # cutting_stock.py
    row_offsets, order = assign(plan, lengths, key=0)    # assignment.py

Row r then holds the sequences `order[row_offsets[r]:row_offsets[r + 1]]`. The four algorithms (`spfhp`,
`lpfhp`, `nnlshp`, `cutting_stock`) take the same arguments, which `spfhp` describes.
"""
