"""Trains by TRL what mindxtrain has prepared: its rows, their order and the rates of the steps are read from JOB.

usage: launch.py JOB.json FD      one JSON line a step is written to the file descriptor FD; SIGTERM saves and ends with 4
"""
import array
import ctypes
import importlib
import json
import os
import signal
import sys
import time


def ends(kind, error, trace):
    """The traceback, and as the last line what began it: of a full disk, datasets speaks of generating."""
    sys.__excepthook__(kind, error, trace)
    while (first := error.__cause__ or (None if error.__suppress_context__ else error.__context__)) is not None:
        error = first
    print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    os._exit(1)  # progress bars would write once more


sys.excepthook = ends
ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))  # PR_SET_PDEATHSIG: who resumes a run that was killed has its folder alone
job = json.load(open(sys.argv[1]))
out = os.fdopen(int(sys.argv[2]), "w", buffering=1)

import torch
from datasets import load_dataset
from transformers import AutoTokenizer, PreTrainedTokenizerFast, TrainerCallback
from transformers.trainer_utils import get_last_checkpoint
import trl
from trl import get_peft_config, get_quantization_config

METHOD = job["method"]  # sft, dpo, orpo, kto, reward


def trainer_and_parser():
    if METHOD == "orpo":  # which has no command
        from trl.experimental.orpo import ORPOConfig, ORPOTrainer

        return ORPOTrainer, trl.TrlParser((trl.ScriptArguments, ORPOConfig, trl.ModelConfig, trl.DatasetMixtureConfig))
    named = {"sft": "SFTTrainer", "dpo": "DPOTrainer", "kto": "KTOTrainer", "reward": "RewardTrainer"}[METHOD]
    return getattr(trl, named), importlib.import_module("trl.scripts." + METHOD).make_parser()


Theirs, parser = trainer_and_parser()
script, args, model_args, _ = parser.parse_args_and_config(["--config", job["settings"]])
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
signal.signal(signal.SIGINT, signal.SIG_IGN)  # the program that started this one passes it on


def collate_sft(rows):
    """Padded to the longest row. Documents of a row do not see each other, and each begins at position 0."""
    width = max(len(r["input_ids"]) for r in rows)
    shape = (len(rows), width)
    ids, labels = torch.zeros(shape, dtype=torch.long), torch.full(shape, -100)
    positions, document = torch.zeros(shape, dtype=torch.long), torch.full(shape, -1)
    for i, r in enumerate(rows):
        n = len(r["input_ids"])
        ids[i, :n], labels[i, :n] = torch.tensor(r["input_ids"]), torch.tensor(r["labels"])
        at = 0
        for d, size in enumerate(r["documents"]):
            positions[i, at : at + size], document[i, at : at + size] = torch.arange(size), d
            labels[i, at] = -100  # nothing predicts a document's first token
            at += size
    batch = {"input_ids": ids, "labels": labels, "position_ids": positions}
    if all(len(r["documents"]) == 1 for r in rows):
        batch["attention_mask"] = (document >= 0).long()
        return batch
    same = document[:, :, None] == document[:, None, :]
    batch["attention_mask"] = (same & torch.ones(width, width, dtype=torch.bool).tril())[:, None]
    return batch


def sequences(row):
    """A row's documents: ids, and labels that are -100 where nothing is learnt."""
    at, out = 0, []
    for size in row["documents"]:
        out.append((row["input_ids"][at : at + size], row["labels"][at : at + size]))
        at += size
    return out


def padded(lists, value):
    width = max(map(len, lists))
    return torch.tensor([x + [value] * (width - len(x)) for x in lists])


def batch_of(all, prefix=""):
    """What TRL's collators make of finished tokens; its completion is what our labels say, holes too."""
    return {
        prefix + "input_ids": padded([ids for ids, _ in all], job["pad"]),
        prefix + "attention_mask": padded([[1] * len(ids) for ids, _ in all], 0),
        prefix + "completion_mask": padded([[int(x != -100) for x in labels] for _, labels in all], 0),
    }


def collate_pairs(rows):
    pairs = [sequences(r) for r in rows]
    return batch_of([chosen for chosen, _ in pairs] + [rejected for _, rejected in pairs])


def collate_orpo(rows):
    pairs, batch = [sequences(r) for r in rows], {}
    for part, name in enumerate(("chosen_", "rejected_")):
        batch.update(batch_of([pair[part] for pair in pairs], name))
        del batch[name + "completion_mask"]
        batch[name + "labels"] = padded([pair[part][1] for pair in pairs], -100)
    return batch


def collate_kto(rows):
    """With each prompt before the answer of the row before it in the device batch."""
    answers, mismatched = [sequences(r)[0] for r in rows], []
    for i, (ids, labels) in enumerate(answers):
        prompt = next((t for t, x in enumerate(labels) if x != -100), len(labels))
        learnt = [x for x in answers[i - 1][1] if x != -100]
        mismatched.append((ids[:prompt] + learnt, [-100] * prompt + learnt))
    cut = lambda all: [tuple(x[: job["max_length"]] for x in one) for one in all]
    return {**batch_of(cut(answers)), **batch_of(cut(mismatched), "KL_"), "label": torch.tensor([r["mark"] > 0 for r in rows])}


collate = {"sft": collate_sft, "orpo": collate_orpo, "kto": collate_kto}.get(METHOD, collate_pairs)


def tokenizer(folder):
    """TRL wants one; rows are tokens already, so that a folder without one gets a stand-in that knows the ends alone. Of
    some families transformers makes an empty one there, whose ends are other ids than the model's."""
    ids = {job["pad"]: "<pad>", job["eos"]: "<eos>"}  # one name an id: of two, one would be given a new id
    try:
        own = AutoTokenizer.from_pretrained(folder)
        if None not in own.convert_ids_to_tokens(list(ids)):
            return own
    except (ValueError, OSError):
        pass
    from tokenizers import Tokenizer, models

    ends = Tokenizer(models.WordLevel({token: i for i, token in ids.items()}, unk_token=ids[job["pad"]]))
    return PreTrainedTokenizerFast(tokenizer_object=ends, pad_token=ids[job["pad"]], eos_token=ids[job["eos"]])


class Order(torch.utils.data.Sampler):
    """The rows of each epoch as mindxtrain has them."""

    def __init__(self, rows):
        self.rows, self.epoch, self.order = rows, 0, array.array("I")
        with open(job["order"], "rb") as f:
            self.order.frombytes(f.read())

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return self.rows

    def __iter__(self):
        at = self.epoch * self.rows
        return iter(self.order[at : at + self.rows].tolist())


class Trainer(Theirs):
    def _prepare_dataset(self, dataset, *_, **__):
        return dataset

    def tokenize_row(self, feature, model=None):
        return feature

    def _get_train_sampler(self, dataset=None):
        return Order(len(self.train_dataset))

    def create_scheduler(self, num_training_steps, optimizer=None):
        rates, base = job["rates"], self.args.learning_rate
        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(
            optimizer or self.optimizer, lambda step: rates[min(step, len(rates) - 1)] / base
        )
        return self.lr_scheduler


TOLD = {"loss", "grad_norm", "eval_loss", "kl", "nll_loss", "log_odds_ratio", "log_odds_chosen"}
TOLD |= {"accuracy", "margin", "min_reward", "mean_reward", "max_reward"}


class Report(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **_):
        line = {k: v for k, v in (logs or {}).items() if k in TOLD or k.startswith(("rewards/", "logps/"))}
        if line:
            out.write(json.dumps({"step": state.global_step, "time": time.time(), **line}) + "\n")

    def on_step_end(self, args, state, control, **_):
        if stop and state.global_step < state.max_steps:
            control.should_save = control.should_training_stop = True


files = {"train": job["rows"]}
if args.eval_strategy != "no":
    files["test"] = job["eval_rows"]
data = load_dataset("json", data_files=files, cache_dir=job["cache"])
args.model_init_kwargs = {"dtype": model_args.dtype, "attn_implementation": "sdpa", "trust_remote_code": False}
model, given = model_args.model_name_or_path, {"peft_config": get_peft_config(model_args)}
quantization = get_quantization_config(model_args)
if job.get("init_adapter"):
    import peft
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

    kind, labels = (AutoModelForSequenceClassification, {"num_labels": 1}) if METHOD == "reward" else (AutoModelForCausalLM, {})
    base = kind.from_pretrained(model, quantization_config=quantization, **labels, **args.model_init_kwargs)
    if METHOD == "reward":  # the score trains with it, whether the adapter has one or not
        start = {"base_model.model.score.weight": base.score.weight.detach().cpu().clone()}
        model = peft.get_peft_model(base, given["peft_config"])
        peft.set_peft_model_state_dict(model, {**start, **peft.load_peft_weights(job["init_adapter"], device="cpu")})
    else:
        model = peft.PeftModel.from_pretrained(base, job["init_adapter"], is_trainable=True)
    given, args.model_init_kwargs = {}, None
elif quantization:
    given["quantization_config"] = quantization
processing = tokenizer(model_args.model_name_or_path)
if METHOD == "reward":  # the score is read before the padding, which the Trainer takes from here whatever the config says
    processing.pad_token = processing.convert_ids_to_tokens(job["pad"])
trainer = Trainer(
    model=model,
    args=args,
    train_dataset=data["train"],
    eval_dataset=data.get("test"),
    data_collator=collate,
    processing_class=processing,
    callbacks=[Report()],
    **given,
)
trainer.train(resume_from_checkpoint=get_last_checkpoint(args.output_dir) if os.path.isdir(args.output_dir) else None)
if trainer.state.global_step < trainer.state.max_steps:
    sys.exit(4)
trained = trainer.accelerator.unwrap_model(trainer.model)
if model_args.use_peft:
    trained.peft_config["default"].base_model_name_or_path = job["base_name"]
else:
    trained.to(getattr(torch, job["saved_dtype"]))
# An adapter that was begun from has a frozen copy beside it, the reference.
trained.save_pretrained(job["checkpoint"], **({"selected_adapters": ["default"]} if model_args.use_peft else {}))
if os.path.exists(os.path.join(job["checkpoint"], "README.md")):
    os.remove(os.path.join(job["checkpoint"], "README.md"))  # a model card with nothing in it
