"""The trainers' own loaders over exported settings: what is installed is asked, the rest is named as absent.

usage: validators.py FOLDER      FOLDER: NAME.TARGET.yaml files, as tests/golden/export has them
Made with axolotl 0.19.0, torchtune 0.6.1, llamafactory 0.9.5, trl 1.16.0; unsloth_cli 2026.10 for Unsloth.
"""
import os
import pathlib
import sys
import tempfile

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["DISABLE_VERSION_CHECK"] = "1"  # LLaMA-Factory pins versions; its parser is what is asked
os.environ["AXOLOTL_DO_NOT_TRACK"] = "1"
import yaml


def axolotl(path):
    from axolotl.utils.config import validate_config
    from axolotl.utils.dict import DictDefault

    card = {"bf16": True, "fp8": False, "tf32": True, "n_gpu": 1, "n_node": 1, "compute_capability": "sm_90"}
    written = yaml.safe_load(path.read_text())
    read = validate_config(DictDefault(written), capabilities=card, env_capabilities={"torch_version": "2.11.0"})
    for key in written:
        key = "type_of_model" if key == "model_type" else key  # its own name of that
        assert read[key] is not None, f"{key} is not a key of axolotl's"
    assert float(read.learning_rate) == written["learning_rate"]


def trl(path):
    import importlib

    from trl import TrlParser

    command = path.read_text().split("run: trl ", 1)[1].split()[0]
    module = importlib.import_module(f"trl.scripts.{command}")
    parser = module.make_parser()
    written = yaml.safe_load(path.read_text())
    if written.get("use_cpu") is None:
        written["use_cpu"] = True  # there is no GPU here, and bf16 asks for one
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as f:
        yaml.safe_dump(written, f)
        f.flush()
        parsed = parser.parse_args_and_config(["--config", f.name])
    training = next(p for p in parsed if hasattr(p, "learning_rate"))
    assert training.learning_rate == written["learning_rate"] and training.adam_beta2 == 0.95


def llama_factory(path):
    from llamafactory.hparams.parser import _TRAIN_ARGS
    from transformers import HfArgumentParser

    written = yaml.safe_load(path.read_text())
    written["use_cpu"] = True
    model, data, training, finetuning, generating = HfArgumentParser(_TRAIN_ARGS).parse_dict(written)
    assert training.learning_rate == written["learning_rate"]
    assert data.cutoff_len in (64, 512, 4096), f"rows of {data.cutoff_len} tokens are not data.seq_len's"


def torchtune(path):
    import torchtune  # noqa: F401
    from omegaconf import OmegaConf
    from torchtune import config

    settings = OmegaConf.load(path)
    config.validate(settings)
    config.instantiate(settings.model)


def unsloth(path):
    from unsloth_cli.config import load_config

    assert load_config(path).training.max_seq_length == 512


ASK = {f.__name__: f for f in (axolotl, trl, llama_factory, torchtune, unsloth)}
bad, absent = 0, {}
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.yaml")):
    target = path.name.split(".")[-2]
    yaml.safe_load(path.read_text())
    if target not in ASK or target in absent:
        absent.setdefault(target, "has no loader that runs apart from its container")
        continue
    try:
        ASK[target](path)
        print("accepted", path.name)
    except ImportError as e:
        absent[target] = str(e).splitlines()[0]
    except Exception as e:
        if "cannot import name" in str(e):  # what it wants of another package is not in the version installed
            absent[target] = str(e).splitlines()[-1]
            continue
        bad += 1
        print("REFUSED", path.name, type(e).__name__, e)
for target, why in absent.items():
    print("absent", target, why)
sys.exit(1 if bad else 0)
