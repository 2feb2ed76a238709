"""Spans whose offsets fit in no unit: each moves to the nearest place of its own text, which it must carry.

python move_offsets.py IN.json > OUT.jsonl
"""

import json
import sys
from pathlib import Path


def move(value, text):
    for part in value.values() if isinstance(value, dict) else value:
        if isinstance(part, dict | list):
            move(part, text)
    if isinstance(value, dict) and {"start", "end", "text"} <= value.keys():
        starts = [i for i in range(len(text)) if text.startswith(value["text"], i)]
        value["start"] = min(starts, key=lambda start: abs(start - value["start"]))
        value["end"] = value["start"] + len(value["text"])


content = Path(sys.argv[1]).read_text(encoding="utf-8-sig").strip()
if content[0] != "[":  # lines of JSON, rather than an array
    content = "[" + content.replace("\n", ",") + "]"
for row in json.loads(content):
    move(row, row.get("data", row)["text"])
    print(json.dumps(row, ensure_ascii=False))
