"""Fast forms on the CPU against plain ones, in turns: attention, the loss, checkpointing, optimizers.

attention      blockwise, against F.scaled_dot_product_attention of each sequence
cross_entropy  the chunked linear cross-entropy, against F.cross_entropy(F.linear(...))
recompute      activation checkpointing of whole layers, against none
optim          LAMB and Muon, against fused AdamW

python -m bench.kernels KERNEL [--help]
"""

import sys
from importlib import import_module

KERNELS = ("attention", "cross_entropy", "recompute", "optim")


def main(arguments: list[str]) -> None:
    """Run one of the benches with its own options."""
    if not arguments or arguments[0] not in KERNELS:
        print(__doc__)
        sys.exit(0 if arguments[:1] == ["--help"] else f"bench.kernels: name one of {', '.join(KERNELS)}")
    import_module(f"bench.kernels.{arguments[0]}").main(arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
