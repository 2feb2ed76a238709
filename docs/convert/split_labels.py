"""Labels with another separator (`a, b`, `a#b`) of a CSV, TSV or JSON lines file, as JSON lines with lists.

python split_labels.py IN.csv > OUT.jsonl
"""

import csv
import json
import re
import sys

with open(sys.argv[1], encoding="utf-8-sig", newline="") as file:
    if sys.argv[1].endswith(".jsonl"):
        rows = map(json.loads, file)
    else:
        rows = csv.DictReader(file, delimiter="\t" if sys.argv[1].endswith(".tsv") else ",")
    for row in rows:
        if isinstance(row["label"], str):
            row["label"] = [name.strip() for name in re.split("[,，、#]", row["label"])]
        print(json.dumps(row, ensure_ascii=False))
