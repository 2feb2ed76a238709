"""Spans of brat (FILE.txt beside FILE.ann), as a JSON line.

python brat_spans.py FILE.txt > OUT.jsonl
"""

import json
import sys
from pathlib import Path

path = Path(sys.argv[1])
spans = []
with open(path.with_suffix(".ann"), encoding="utf-8-sig") as file:
    for line in file:
        if line.startswith("T"):
            _, place, own_text = line.rstrip("\r\n").split("\t")
            label, start, *_, end = place.split()
            spans.append([int(start), int(end), label])
            if ";" not in place:  # a span in parts is read from its first part to its last
                spans[-1].append(own_text)
text = path.read_bytes().decode("utf-8")  # a carriage return counts in brat, too
print(json.dumps({"text": text, "spans": spans}, ensure_ascii=False))
