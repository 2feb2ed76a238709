"""README's figure: throughput of a pretraining step beside `transformers`, from bench/results/step_*.json.

python -m bench.throughput docs/throughput.png
"""

import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt

RESULTS = Path(__file__).parents[1] / "results"
MODELS = {"4 x 256": "step_mini", "6 x 384 (MiniLM)": "step_minilm", "12 x 768 (base)": "step_base_bf16"}
SIDES = {
    "padded": ("transformers, padded to 512", "#b8c0c8"),
    "careful": ("transformers, length-grouped", "#7d8a97"),
    "brimful": ("Brimful, packed", "#0b7285"),
}


def throughput(file: str) -> dict[str, float]:
    """Real tokens per second of each side in bf16, relative to `transformers` with padding."""
    rows = json.loads((RESULTS / f"{file}.json").read_text(encoding="utf-8"))["rows"]
    rates = {row["variant"]: row["tokens_per_second"] for row in rows if row["cell"]["dtype"] == "bf16"}
    return {side: rates[side] / rates["padded"] for side in SIDES}


def main(out: Path) -> None:
    figure, axes = plt.subplots(figsize=(8, 2.9), constrained_layout=True)
    for group, file in enumerate(MODELS.values()):
        for place, (side, value) in enumerate(throughput(file).items()):
            label, colour = SIDES[side]
            y = group + 0.27 * (place - 1)
            axes.barh(y, value, 0.25, color=colour, label=label if group == 0 else None)
            axes.text(value + 0.08, y, f"{value:.1f}", va="center", fontsize=9)
    axes.set_yticks(range(len(MODELS)), MODELS)
    axes.invert_yaxis()
    axes.set_xlabel("real tokens per second, relative to padding (two CPU cores, bf16, Wikipedia's lengths)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    figure.savefig(out, dpi=130)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
