"""Pictures of docs/ from bench/results: served models, learning curves. python -m bench.pages.pictures"""

from matplotlib.figure import Figure

from bench.pages.__main__ import ROOT, Results, pick

NAMES = {
    ("serve_models", "multilingual"): "a published encoder\n28 M parameters",
    ("serve_models", "student46"): "its student\n4.6 M",
    ("serve_models", "own"): "an encoder of your own\n4.7 M",
    ("serve_student", "student"): "its student\n3.4 M",
    ("serve_tfidf", "train.tsv"): "TF-IDF and a linear model",
}


def draw_served_models() -> None:
    figure = Figure((7.5, 3.6), layout="constrained")
    axes = figure.add_subplot(xlabel="texts a second, at most", ylabel="accuracy, %", xscale="log")
    for (file, model), name in NAMES.items():
        rows = [row for row in Results(ROOT)[file]["rows"] if row["side"] in ("fp32", "tfidf")]
        speed = pick(rows, model=model, question="capacity")["texts_per_second"]
        measured = pick(rows, model=model, question="accuracy")
        percent, colour = 100 * measured["accuracy"], "#0b7285" if model in ("own", "student") else "#666666"
        error = (percent * (100 - percent) / measured["texts"]) ** 0.5
        axes.errorbar(speed, percent, error, fmt="o", color=colour)
        sign, side = (-1.1, "top") if model in ("own", "train.tsv") else (1.1, "bottom")  # apart from others
        axes.text(speed, percent + sign * error, name, va=side, ha="center", color=colour)
    axes.set(xlim=(20, 1000), ylim=(80.4, 87.5), xticks=(20, 50, 100, 200, 500, 1000))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.minorticks_off()
    figure.savefig(ROOT / "docs/serving.png", dpi=140)


def draw_learning_curves() -> None:
    record = Results(ROOT)["learning_curves"]
    figure = Figure((7.5, 3.6), layout="constrained")
    axes = figure.add_subplot(xlabel="CPU seconds", ylabel="held-out loss, nats a token")
    styles = zip(("#666666", "#0b7285", "#e8590c"), ("bottom", "bottom", "top"), strict=True)
    for run, (colour, side) in zip(record["runs"], styles, strict=True):
        seconds, losses = zip(*((each["cpu_seconds"], each["loss"]) for each in run["points"]), strict=True)
        axes.plot(seconds, losses, color=colour)
        axes.text(seconds[-1], losses[-1], f"  {run['arm']}", color=colour, va=side)
    axes.axhline(record["frequency_loss"], color="#999999", linestyle=":")
    axes.text(
        seconds[-1], record["frequency_loss"] - 0.05, "frequencies of pieces", color="#666666", va="top"
    )
    axes.set_xlim(0, 1.3 * seconds[-1])
    figure.savefig(ROOT / "docs/results/learning_curves.png", dpi=140)


if __name__ == "__main__":
    draw_served_models()
    draw_learning_curves()
