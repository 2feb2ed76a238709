"""WebAnno TSV, as INCEpTION exports it, as CoNLL columns.

python webanno_tags.py IN.tsv > OUT.conll
"""

import re
import sys

FEATURE = "value"  # of the layer with the spans, as a line #T_SP=LAYER|FEATURE|FEATURE names it
names, last = ["number", "offsets", "word"], ""
with open(sys.argv[1], encoding="utf-8-sig") as file:
    for line in file:
        columns = line.rstrip("\n").split("\t")
        if line.startswith("#T_"):
            names += columns[0].split("|")[1:] or [""]
        if re.fullmatch(r"\d+-\d+\.\d+", columns[0]):  # a part of a word
            continue
        if not re.fullmatch(r"\d+-\d+", columns[0]):  # comments and empty lines
            last = ""
            print()
            continue
        name = columns[names.index(FEATURE)]
        label = re.sub(r"\[\d+\]|\|.*", "", name)
        print(columns[2], "O" if label in "_*" else f"{'I' if '[' in name and name == last else 'B'}-{label}")
        last = name
