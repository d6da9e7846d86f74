"""
mindXtrain: fine-tunes language models on one machine. The command `mindxtrain` does the same and more.
"""

from collections.abc import Callable, Mapping, Sequence
import os
from typing import Annotated, Any

import numpy
import numpy.typing
from numpy.typing import NDArray


__version__: str

class Error(Exception):
    """What went wrong, in the one line that the command would print."""

    exit_code: int

class BadInput(Error, ValueError):
    """A recipe, a file or an argument is wrong; the line says which and what to do."""

class VerifyFailed(Error):
    """A digest, gate or comparison did not hold."""

class Missing(Error):
    """Something is not on this machine; the line says how to get it."""

class Interrupted(Error):
    """Stopped; nothing half done is left behind."""

def set_log_level(level: str) -> None:
    """What is said on stderr: "info", "warn" or "error"."""

class Recipe:
    """A valid recipe. It never changes."""

    @staticmethod
    def load(path: str | os.PathLike) -> Recipe:
        """
        Of a file, or of a recipe that ships, by its name. BadInput: the first mistake with file, line, column and key.
        """

    @staticmethod
    def parse(text: str, source: str = 'recipe') -> Recipe:
        """Of YAML, or of JSON, which YAML reads too."""

    @staticmethod
    def check(text: str, source: str = 'recipe') -> list[str]:
        """Every mistake of a text, a line each; none where it is valid."""

    @property
    def digest(self) -> str:
        """BLAKE3 of what it asks for, whatever way that is written."""

    @property
    def source(self) -> str: ...

    @property
    def hints(self) -> list[str]: ...

    def to_dict(self) -> dict[str, Any]:
        """Every field with its effective value."""

    def __repr__(self) -> str: ...

def plan(recipe: Recipe, *, device: str | None = None, measured: str | os.PathLike[str] | None = None, data: str | os.PathLike[str] | None = None, threads: int = 0) -> dict[str, Any]:
    """
    What a run will take in memory, time, energy and money, as `mindxtrain plan --json` answers. device: a name of the price table; measured: a plan.json to count with; data: a prepared folder.
    """

class Step:
    """An optimizer step of a run, as metrics.jsonl has it."""

    @property
    def step(self) -> int:
        """counts from 1"""

    @property
    def loss(self) -> float: ...

    @property
    def lr(self) -> float: ...

    @property
    def grad_norm(self) -> float: ...

    @property
    def tokens(self) -> int:
        """seen so far"""

    @property
    def tok_s(self) -> float: ...

    @property
    def tflops(self) -> float: ...

    @property
    def memory(self) -> int:
        """bytes in use"""

    @property
    def eval_loss(self) -> float | None:
        """where this step was followed by an evaluation"""

    @property
    def method(self) -> dict[str, float]:
        """what the method says beside: rewards, margins"""

    def __repr__(self) -> str: ...

def run(recipe: Recipe, out: str | os.PathLike[str], on_step: Callable[[Step], bool | numpy.bool_ | None] | None = None, *, plan: str | os.PathLike[str] | None = None, data: str | os.PathLike[str] | None = None, threads: int = 0) -> dict[str, Any]:
    """
    The whole chain into the folder `out`, as `mindxtrain run`: plan, prepare, train, evaluate, quantize, receipt. On the same folder again it keeps what is finished. on_step is called after each step; where it returns False or raises, or Ctrl-C is pressed, the state is saved and the same call goes on later. The answer: finished, checkpoint, manifest, results.
    """

class Tokenizer:
    """
    A model's tokenizer and chat template. Any number of threads may use it.
    """

    def __init__(self, model: str | os.PathLike) -> None:
        """
        A folder, a .gguf file, a Hub id or one of the short names that `mindxtrain models` lists.
        """

    def encode(self, text: str) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]:
        """The ids of Hugging Face's tokenizers, no special token added."""

    def decode(self, ids: numpy.typing.NDArray[numpy.integer] | Sequence[int], skip_special: bool = False) -> str: ...

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None, add_generation_prompt: bool = False) -> str:
        """The text that the model's chat template makes of a conversation."""

    def id(self, token: str) -> int:
        """As the vocabulary spells it; -1 where it has no such token."""

    def token(self, id: int) -> str: ...

    @property
    def vocab_size(self) -> int:
        """largest id + 1"""

    @property
    def bos(self) -> int:
        """-1 where there is none"""

    @property
    def eos(self) -> int:
        """-1 where there is none"""

class Answer:
    """What a model said to one prompt."""

    @property
    def ids(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...

    @property
    def logprobs(self) -> Annotated[NDArray[numpy.float32], dict(shape=(None,))]:
        """of each id, before temperature"""

    @property
    def text(self) -> str:
        """"" where the model has no tokenizer"""

    @property
    def stopped(self) -> bool:
        """by the end of its turn, and not by max_tokens"""

    def __repr__(self) -> str: ...

class Model:
    """A model in memory. Calls of several threads take turns."""

    def __init__(self, name: str | os.PathLike, *, adapter: str | os.PathLike | None = None, dtype: str | None = None, device: str = 'cpu', positions: int = 0, threads: int = 0) -> None:
        """
        name: a folder, a .gguf file, a Hub id or a short name; adapter: a PEFT folder, as a run's checkpoint; dtype: bfloat16 or float32 (none: the checkpoint's own); positions: the longest sequence (0: the model's, at most 8,192).
        """

    def score(self, rows: Sequence[str | numpy.typing.NDArray[numpy.integer] | Sequence[int]]) -> list[numpy.typing.NDArray[numpy.float32]]:
        """
        For each row of ids, or text, the log-probability of every token given those before it; the first is NaN.
        """

    def generate(self, prompts: Sequence[str | Sequence[dict[str, Any]] | numpy.typing.NDArray[numpy.integer] | Sequence[int]], *, max_tokens: int = 128, temperature: float = 0.0, top_p: float = 1.0, top_k: int = 0, seed: int = 0) -> list[Answer]:
        """
        An answer for each prompt: a text to go on with, a conversation (a list of messages) or ids. Temperature 0 is the most likely token.
        """

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def positions(self) -> int: ...

    @property
    def vocab_size(self) -> int: ...
