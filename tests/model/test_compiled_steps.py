"""torch.compile with a way out."""

import pytest
import torch
from torch import Tensor

from brimful.base.torch_compile import Compiled, warn_once


@pytest.fixture(autouse=True)
def _fresh():
    torch.compiler.reset()
    warn_once.cache_clear()


def double(x: Tensor) -> Tensor:
    return x * 2


def no_compiler(graph, inputs):
    raise FileNotFoundError("g++ is not there\nsecond line")


class Graphs(list):
    """A backend that keeps the graphs which it has compiled, and whose code raises what `errors` has."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[Exception] = []

    def __call__(self, graph, inputs):
        self.append(graph)

        def run(*given):
            if self.errors:
                raise self.errors.pop()
            return graph.forward(*given)

        return run


def test_a_function_is_compiled_once(capsys):
    graphs = Graphs()
    function = Compiled(double, "doubling", backend=graphs, fullgraph=True)
    for _ in range(3):
        assert torch.equal(function(torch.ones(4)), torch.full((4,), 2.0))
    assert function.failure is None
    assert len(graphs) == 1
    assert not capsys.readouterr().err


def test_what_an_operator_compiles_serves_the_second_call_of_a_graph_too():
    """torch's check of custom operators gives the first call of a graph other dispatch keys. On a GPU the
    second call is captured, and the cross-entropy must not be compiled again then."""
    graphs = Graphs()
    inner = Compiled(double, "doubling", backend=graphs, fullgraph=True)

    @torch.library.custom_op("brimful_test::compiles", mutates_args=())
    def compiles(x: Tensor) -> Tensor:
        return inner(x)

    compiles.register_fake(torch.empty_like)
    outer = Compiled(lambda x: compiles(x) + 1, "a step", backend="aot_eager", fullgraph=True)
    for _ in range(3):
        assert torch.equal(outer(torch.ones(4)), torch.full((4,), 3.0))
    assert outer.failure is None
    assert len(graphs) == 1


@pytest.mark.parametrize("rank", [0, 1])
def test_a_backend_that_fails_is_told_once_by_the_main_rank_and_the_function_runs(capsys, monkeypatch, rank):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: rank)
    function = Compiled(double, "doubling", backend=no_compiler)
    for _ in range(3):
        assert torch.equal(function(torch.ones(4)), torch.full((4,), 2.0))
    assert function.failure
    line = "warning: doubling is not compiled: FileNotFoundError: g++ is not there\n"
    assert capsys.readouterr().err == ("" if rank else line)


def test_what_dynamo_does_not_support_runs(capsys):
    def function(x: Tensor) -> Tensor:
        return x * 2 if x.sum() > 0 else x

    wrapped = Compiled(function, "a branch", fullgraph=True, backend="eager")
    assert torch.equal(wrapped(torch.ones(4)), torch.full((4,), 2.0))
    assert wrapped.failure
    assert capsys.readouterr().err.count("warning") == 1


def test_too_many_recompilations_end_in_the_function(capsys):
    function = Compiled(double, "doubling", fullgraph=True, backend="eager", dynamic=False)
    with torch._dynamo.config.patch(recompile_limit=2):
        for size in range(2, 7):
            assert torch.equal(function(torch.ones(size)), torch.full((size,), 2.0))
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning")]
    assert "RecompileLimit" in line
    assert line.endswith(function.failure)


def test_a_backward_pass_that_cannot_be_compiled_shows_in_the_first_call():
    from torch._dynamo.backends.common import aot_autograd

    backend = aot_autograd(fw_compiler=lambda graph, _: graph.forward, bw_compiler=no_compiler)
    function = Compiled(double, "doubling", backend=backend)
    x = torch.ones(4, requires_grad=True)
    function(x).sum().backward()
    assert function.failure
    assert torch.equal(x.grad, torch.full((4,), 2.0))


@pytest.mark.parametrize(
    ("error", "has_run"),
    [
        (MemoryError(), False),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), False),
        (RuntimeError("device-side assert"), True),
    ],
)
def test_errors_of_a_compiled_function_that_has_run_are_raised_and_of_memory_always(error, has_run):
    """It works the next time."""
    graphs = Graphs()
    function = Compiled(double, "doubling", backend=graphs)
    if has_run:
        function(torch.ones(4))
    graphs.errors.append(error)
    with pytest.raises(type(error)):
        function(torch.ones(4))
    assert torch.equal(function(torch.ones(4)), torch.full((4,), 2.0))
    assert function.failure is None
