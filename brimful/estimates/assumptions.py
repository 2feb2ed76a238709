"""What an estimate assumes. Each assumption is an option, and each that is used stands in the result."""

from dataclasses import dataclass
from typing import Any

from brimful.errors import BrimfulError


@dataclass(frozen=True, kw_only=True)
class AssumeConfig:
    """What an estimate assumes where nothing says it. Shares are from 0 to 1.

    The rates of kernels are those of bench/gpu (docs/performance.md); no GPU has confirmed them.
    """

    mfu: float | None = None
    """Model flops utilisation of one GPU, in place of the rates of kernels below."""
    product_share: float = 0.7
    """Share of the peak that matrix products reach."""
    attention_forward: float = 0.33
    """Share of the peak that attention's forward pass reaches, over whole tiles of 128 x 128."""
    attention_backward: float = 0.26
    """The same, backward."""
    bandwidth_share: float = 0.9
    """Share of the memory's bandwidth that all other kernels reach."""
    launch_us: float = 2.0
    """Microseconds that each kernel costs beside its work; ten times as long in steps that are not
    compiled."""
    uncompiled_traffic: float = 2.0
    """How many times as many bytes the other kernels move in steps that are not compiled."""
    link_gb: float | None = None
    """GB a second that a GPU sends to others of its host; by default its data sheet's NVLink, else PCIe."""
    network_gbit: float | None = None
    """Gbit a second that a host sends to others, by all its network cards together; by default those of the
    vendor's own system (DGX), else 25."""
    link_share: float = 0.75
    """Share of these that collectives reach."""
    latency_us: float = 15.0
    """Microseconds of a collective for each doubling of the ranks."""
    overlap: float = 0.9
    """Share of the last micro-batch's backward pass that hides the sum of gradients."""
    per_host: int | None = None
    """GPUs of a host; by default 8 (V100-SXM3 16, GB200 72)."""
    memory_factor: float = 1.03
    """Memory of a pass on a GPU, divided by that of the same pass uncompiled, traced without a GPU."""
    context_gib: float = 1.0
    """GiB of a GPU that CUDA, NCCL and libraries take."""
    process_mb: float = 220.0
    """MB that a training on a CPU loads beside what estimate itself has."""
    kernels_mb: float = 100.0
    """MB of kernels that oneDNN keeps in a 16-bit training on a CPU, one for each shape of a product: up to
    1,000 after some hundred updates with local attention, or with sequences above 512 tokens."""
    head_room: float = 0.1
    """Share of what the model leaves free that stays free, as with rows_per_micro_batch=auto."""
    update_tokens: int = 524_288
    """Token slots of an update where rows_per_update is left out, with GPUs."""
    vocabulary: int = 30_522
    """Tokens of the vocabulary; only without data."""
    length: int | None = None
    """Tokens of a sequence; only without data, and by default packing.max_length."""
    fill: float = 0.99
    """Share of token slots that hold tokens; only without data."""
    text_bytes: float = 4.0
    """Bytes of raw text for each token; only without data."""
    prepare_mb: float = 5.0
    """MB of raw text that one core prepares in a second; only without data."""
    prepare_cores: int = 8
    """Cores that prepare; only without data."""
    finetune_epochs: float = 3.0
    """Epochs of fine-tuning."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and not value > 0 and name not in ("overlap", "kernels_mb"):
                raise BrimfulError(f"assume.{name} is {value:g}: it must be above 0")
        shares = ("mfu", "product_share", "attention_forward", "attention_backward", "bandwidth_share")
        for name in (*shares, "link_share", "overlap", "head_room", "fill"):
            if not 0 <= (getattr(self, name) or 0) <= 1:
                raise BrimfulError(f"assume.{name} is {getattr(self, name):g}: a share is from 0 to 1")

    def named(self, *names: str, **found: Any) -> dict[str, Any]:
        """The assumptions of these names, by name; `found` are the values of those that are None."""
        return {name: getattr(self, name) for name in names} | found
