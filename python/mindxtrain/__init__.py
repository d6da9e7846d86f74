"""mindXtrain for Python: the library behind the command `mindxtrain`, with numpy's arrays for token ids and log-probabilities.

docs/python.md has examples. Errors are mindxtrain.Error and its subclasses: one line that says what is wrong and what to do.
"""
import sys

if sys.version_info < (3, 10):
    raise ImportError("mindxtrain's Python module wants Python 3.10 or newer; the command `mindxtrain` works without any")
try:
    import nanobind_backend  # noqa: F401  what the module is served by
    import numpy  # noqa: F401
except ImportError as e:
    raise ImportError(f"mindxtrain's Python module wants {e.name}: pip install 'mindxtrain[python]'; the command `mindxtrain` works without") from None

from ._mindxtrain import (  # noqa: E402
    Answer, BadInput, Error, Interrupted, Missing, Model, Recipe, Step, Tokenizer, VerifyFailed, __version__, plan, run, set_log_level)

__all__ = ["Answer", "BadInput", "Error", "Interrupted", "Missing", "Model", "Recipe", "Step", "Tokenizer", "VerifyFailed", "__version__",
           "plan", "run", "set_log_level"]
