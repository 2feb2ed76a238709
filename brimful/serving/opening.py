"""A folder's model, opened by the module that computes it."""

from brimful.hf.model_folder import ModelFolder
from brimful.serving.config import Opening
from brimful.serving.opened import ServedEncoder, ServedTask, graph_file


def is_graph(folder: ModelFolder) -> bool:
    """Whether a file of ONNX holds the model: it has no weights of its own."""
    weights = (*folder.path.glob("*.safetensors*"), *folder.path.glob("pytorch_model*"))
    return graph_file(folder).is_file() and not weights


def open_served(opening: Opening) -> ServedTask | ServedEncoder:
    """The model in a folder.

    Raises:
        BrimfulError: the folder holds no model that can predict, an option does not fit it, or a package that
            computes it is missing.
    """
    folder = ModelFolder.open(opening.model, "model")
    # Each module loads its own runtime, and only one of the two loads torch.
    if is_graph(folder):
        from brimful.serving.graph_models import open_graph

        return open_graph(folder, opening)
    from brimful.serving.torch_models import open_with_torch

    return open_with_torch(folder, opening)
