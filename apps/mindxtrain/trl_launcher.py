"""Trains by TRL what mindxtrain has prepared: its rows, their order and the rates of the steps are read from JOB.

usage: launch.py JOB.json FD      one JSON line a step is written to the file descriptor FD; SIGTERM saves and ends with 4
"""
import array
import json
import os
import signal
import sys
import time

job = json.load(open(sys.argv[1]))
out = os.fdopen(int(sys.argv[2]), "w", buffering=1)

import torch
from datasets import load_dataset
from transformers import TrainerCallback
from transformers.trainer_utils import get_last_checkpoint
from trl import SFTTrainer, get_peft_config, get_quantization_config
from trl.scripts.sft import make_parser

script, args, model_args, _ = make_parser().parse_args_and_config(["--config", job["settings"]])
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
signal.signal(signal.SIGINT, signal.SIG_IGN)  # the program that started this one passes it on


def collate(rows):
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


class Trainer(SFTTrainer):
    def _get_train_sampler(self, dataset=None):
        return Order(len(self.train_dataset))

    def create_scheduler(self, num_training_steps, optimizer=None):
        rates, base = job["rates"], self.args.learning_rate
        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(
            optimizer or self.optimizer, lambda step: rates[min(step, len(rates) - 1)] / base
        )
        return self.lr_scheduler


class Report(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **_):
        line = {k: logs[k] for k in ("loss", "grad_norm", "eval_loss") if k in logs}
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
model, peft_config = model_args.model_name_or_path, get_peft_config(model_args)
if job.get("init_adapter"):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(model, quantization_config=get_quantization_config(model_args), **args.model_init_kwargs)
    model, peft_config, args.model_init_kwargs = PeftModel.from_pretrained(base, job["init_adapter"], is_trainable=True), None, None
trainer = Trainer(
    model=model,
    args=args,
    train_dataset=data["train"],
    eval_dataset=data.get("test"),
    data_collator=collate,
    quantization_config=None if job.get("init_adapter") else get_quantization_config(model_args),
    peft_config=peft_config,
    callbacks=[Report()],
)
trainer.train(resume_from_checkpoint=get_last_checkpoint(args.output_dir) if os.path.isdir(args.output_dir) else None)
if trainer.state.global_step < trainer.state.max_steps:
    sys.exit(4)
trained = trainer.accelerator.unwrap_model(trainer.model)
if model_args.use_peft:
    for config in trained.peft_config.values():
        config.base_model_name_or_path = job["base_name"]
else:
    trained.to(getattr(torch, job["saved_dtype"]))
trained.save_pretrained(job["checkpoint"])
if os.path.exists(os.path.join(job["checkpoint"], "README.md")):
    os.remove(os.path.join(job["checkpoint"], "README.md"))  # a model card with nothing in it
