"""Spans of spaCy's training data (`[text, {"entities": [[start, end, label]]}]`), as JSON lines.

python spacy_spans.py IN.json > OUT.jsonl
"""

import json
import sys
from pathlib import Path

for text, notes in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")):
    print(json.dumps({"text": text, "spans": notes["entities"]}, ensure_ascii=False))
