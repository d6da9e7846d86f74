"""The Python module against the command: the same bytes, the same numbers, the same lines of error.

usage: module_test.py MINDXTRAIN SOURCE_FOLDER      PYTHONPATH: where the package `mindxtrain` is
"""
import importlib.util
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock

import numpy as np

import mindxtrain as mx

PROGRAM, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2])
WORK = pathlib.Path(tempfile.mkdtemp(prefix="mxt_python_"))
RECIPE = """
meta: {project: pool, run_name: tiny}
hardware: {name: cpu}
autotune: {enabled: false}
model:
  init: random
  name: tiny
  tokenizer: tok
  config: {model_type: llama, architectures: [LlamaForCausalLM], hidden_size: 32, intermediate_size: 64, num_hidden_layers: 2, num_attention_heads: 2, num_key_value_heads: 1, max_position_embeddings: 512}
data: {source: local, path: corpus.txt, seq_len: 64}
train:
  method: {kind: pretrain}
  schedule: {max_steps: 6}
  batch: {per_device: 1, grad_accum: 1}
"""


def command(*arguments, code=0):
    r = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, cwd=WORK)
    assert r.returncode == code, f"{arguments}: {r.returncode}\n{r.stderr}"
    return r.stdout


def last_line(*arguments, code):
    r = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, cwd=WORK)
    assert r.returncode == code, r.stderr
    return r.stderr.strip().splitlines()[-1].removeprefix("mindxtrain: ")


def setUpModule():
    os.chdir(WORK)
    mx.set_log_level("error")
    rows = (SOURCE / "examples/pool/rows.jsonl").read_text()
    (WORK / "corpus.txt").write_text(rows.translate(str.maketrans("{}\"", "   ")))
    special = [a for t in ("<|end|>", "<|user|>", "<|assistant|>") for a in ("--special", t)]
    command("tokenizer", "train", "--input", "corpus.txt", "--vocab-size", "300", *special, "--out", "tok")
    (WORK / "recipe.yaml").write_text(RECIPE)
    command("train", "recipe.yaml", "--out", "by_command")
    (WORK / "by_command/checkpoint/chat_template.jinja").write_text(
        "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}")


def tearDownModule():
    os.chdir("/")
    shutil.rmtree(WORK)


def weights(run):
    return (WORK / run / "checkpoint/model.safetensors").read_bytes()


class Recipes(unittest.TestCase):
    def test_a_file_and_its_text_are_one_recipe(self):
        of_file, of_text = mx.Recipe.load("recipe.yaml"), mx.Recipe.parse(RECIPE)
        self.assertEqual(of_file.digest, of_text.digest)
        self.assertEqual(mx.Recipe.load(pathlib.Path("recipe.yaml")).digest, of_text.digest)
        self.assertEqual(of_file.to_dict()["train"]["schedule"]["max_steps"], 6)
        of_json = mx.Recipe.parse(json.dumps({"meta": {"project": "p", "run_name": "r"}, "model": "smollm2-135m-instruct",
                                              "data": {"source": "local", "path": "rows.jsonl"}}))
        self.assertEqual(of_json.to_dict()["model"]["name"], "HuggingFaceTB/SmolLM2-135M-Instruct")

    def test_mistakes_are_the_commands_lines(self):
        bad = RECIPE.replace("max_steps: 6", "max_stepz: 6")
        (WORK / "bad.yaml").write_text(bad)
        with self.assertRaises(mx.BadInput) as e:
            mx.Recipe.load("bad.yaml")
        self.assertIsInstance(e.exception, (mx.Error, ValueError))
        self.assertEqual(e.exception.exit_code, 1)
        self.assertEqual(str(e.exception), last_line("plan", "bad.yaml", code=1))
        self.assertIn("max_stepz", mx.Recipe.check(bad, "bad.yaml")[0])
        self.assertEqual(mx.Recipe.check(RECIPE), [])

    def test_the_plan_is_the_commands(self):
        plan = mx.plan(mx.Recipe.load("recipe.yaml"))
        asked = json.loads(command("plan", "recipe.yaml", "--json"))
        for answer in (plan, asked):
            del answer["categories"]["process"]  # the program's own, and Python's
        self.assertEqual(plan["categories"], asked["categories"])
        self.assertEqual(plan["step_flops"], asked["step_flops"])
        with self.assertRaises(mx.BadInput):
            mx.plan(mx.Recipe.load("recipe.yaml"), device="abacus")


class Runs(unittest.TestCase):
    def test_steps_are_told_and_the_bytes_are_the_commands(self):
        seen = []
        answer = mx.run(mx.Recipe.parse(RECIPE), "whole", lambda s: seen.append((s.step, s.loss, s.tokens)))
        self.assertTrue(answer["finished"])
        log = [json.loads(line) for line in (WORK / "whole/metrics.jsonl").read_text().splitlines()]
        self.assertEqual([s[0] for s in seen], [1, 2, 3, 4, 5, 6])
        for (step, loss, _), line in zip(seen, log, strict=True):
            self.assertEqual(step, line["step"])
            self.assertAlmostEqual(loss, line["loss"], places=5)
        self.assertEqual(weights("whole"), weights("by_command"))
        command("receipt", answer["manifest"])
        again = []
        self.assertTrue(mx.run(mx.Recipe.parse(RECIPE), "whole", again.append)["finished"])
        self.assertEqual(again, [])  # what is finished is kept

    def test_a_run_that_was_stopped_goes_on(self):
        stopped = mx.run(mx.Recipe.parse(RECIPE), "halves", lambda s: s.step < 3)
        self.assertFalse(stopped["finished"])
        self.assertIsNone(stopped["manifest"])
        seen = []
        self.assertTrue(mx.run(mx.Recipe.parse(RECIPE), "halves", lambda s: seen.append(s.step))["finished"])
        self.assertEqual(seen, [4, 5, 6])
        self.assertEqual(weights("halves"), weights("by_command"))

    def test_a_run_that_was_stopped_stops_no_later_call(self):
        self.assertFalse(mx.run(mx.Recipe.parse(RECIPE), "stopped", lambda s: False)["finished"])
        asked = {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": "http://127.0.0.1:1", "HF_HOME": str(WORK / "no_hub")}
        with unittest.mock.patch.dict(os.environ, asked), self.assertRaisesRegex(mx.Missing, "cannot be reached"):
            mx.Tokenizer("somebody/model")  # not Interrupted

    def test_numpys_false_stops_like_false(self):
        for out, answer in (("numpy", np.bool_(False)), ("array", np.array(False))):
            self.assertFalse(mx.run(mx.Recipe.parse(RECIPE), pathlib.Path(out), lambda s: answer)["finished"])
        goes_on = iter([np.bool_(True), None, 0, True, np.float32(0), np.array(True)])
        self.assertTrue(mx.run(mx.Recipe.parse(RECIPE), "truths", lambda s: next(goes_on))["finished"])

    def test_what_a_callback_raises_comes_out_and_the_state_is_saved(self):
        def on_step(s):
            if s.step == 2:
                raise KeyError("enough")
        with self.assertRaisesRegex(KeyError, "enough"):
            mx.run(mx.Recipe.parse(RECIPE), "raised", on_step)
        seen = []
        mx.run(mx.Recipe.parse(RECIPE), "raised", lambda s: seen.append(s.step))
        self.assertEqual(seen, [3, 4, 5, 6])

    def test_ctrl_c_ends_a_run_without_a_callback(self):
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it from the start
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        with self.assertRaises(KeyboardInterrupt):
            mx.run(mx.Recipe.parse(RECIPE.replace("max_steps: 6", "max_steps: 1000000")), "ctrl_c")
        self.assertTrue(list((WORK / "ctrl_c/checkpoints").iterdir()))

    def test_one_run_at_a_time(self):
        inner = []

        def on_step(_):
            if not inner:
                with self.assertRaisesRegex(mx.BadInput, "another run"):
                    mx.run(mx.Recipe.parse(RECIPE), "inner")
                inner.append(True)
        mx.run(mx.Recipe.parse(RECIPE), "outer", on_step)
        self.assertEqual(inner, [True])

    def test_another_recipe_of_the_folder_is_refused(self):
        with self.assertRaisesRegex(mx.BadInput, "another recipe"):
            mx.run(mx.Recipe.parse(RECIPE.replace("max_steps: 6", "max_steps: 7")), "by_command")


class Tokenizers(unittest.TestCase):
    def test_encode_and_decode(self):
        tok = mx.Tokenizer("tok")
        text = "Is the pool open on Sunday? Zwölf € 🦆"
        ids = tok.encode(text)
        self.assertEqual(ids.dtype, np.int32)
        (WORK / "text").write_text(text)
        self.assertEqual(ids.tolist(), json.loads(command("tokenizer", "encode", "--model", "tok", "--input", "text", "--json"))["ids"])
        for form in (ids, ids.tolist(), ids.astype(np.int64), ids[::1], tuple(ids.tolist())):
            self.assertEqual(tok.decode(form), text)
        self.assertEqual(tok.decode(ids[::-1][::-1]), text)
        self.assertEqual(tok.decode([]), "")
        self.assertEqual(tok.token(tok.id("<|end|>")), "<|end|>")

    def test_what_is_no_id(self):
        tok = mx.Tokenizer("tok")
        for bad in ([-1], [2**31], [1.5], np.array([1.0]), [[1, 2]], "text", [2**70]):
            with self.assertRaises(mx.BadInput, msg=repr(bad)):
                tok.decode(bad)
        with self.assertRaises(mx.Missing):
            mx.Tokenizer("nobody/nothing")

    def test_chats(self):
        tok = mx.Tokenizer("by_command/checkpoint")
        said = [{"role": "user", "content": "Hello"}]
        self.assertEqual(tok.render(said, add_generation_prompt=True), "<|user|>Hello<|end|><|assistant|>")
        with self.assertRaises(mx.BadInput):
            mx.Tokenizer("tok").render(said)


class Models(unittest.TestCase):
    def setUp(self):
        self.model = mx.Model("by_command/checkpoint", threads=1)

    def test_scores_are_the_commands(self):
        rows = [[5, 6, 7, 8, 9], np.arange(40, 60), "Is the pool open?"]
        scores = self.model.score(rows)
        rows[2] = self.model.tokenizer.encode(rows[2])
        (WORK / "rows.jsonl").write_text("".join(json.dumps({"ids": [int(i) for i in r]}) + "\n" for r in rows))
        command("score", "--model", "by_command/checkpoint", "--input", "rows.jsonl", "--output", "scores.jsonl", "--threads", 1)
        asked = [json.loads(line)["logprobs"] for line in (WORK / "scores.jsonl").read_text().splitlines()]
        for got, want in zip(scores, asked, strict=True):
            self.assertEqual(got.dtype, np.float32)
            self.assertTrue(np.isnan(got[0]))
            np.testing.assert_array_equal(got[1:], np.array(want[1:], np.float32))
        self.assertEqual(self.model.score([]), [])

    def test_answers(self):
        prompts = ["Is the pool", [{"role": "user", "content": "Hello"}], [5, 6, 7]]
        answers = self.model.generate(prompts, max_tokens=6)
        self.assertEqual(len(answers), 3)
        for a in answers:
            self.assertLessEqual(len(a.ids), 6)
            self.assertEqual(len(a.ids), len(a.logprobs))
            self.assertEqual(a.text, self.model.tokenizer.decode(a.ids))
        # What it says of its answer is what it says of the same ids as a row.
        a = answers[2]
        row = self.model.score([[5, 6, 7, *a.ids.tolist()]])[0]
        np.testing.assert_allclose(a.logprobs, row[3:], atol=2e-2)
        self.assertTrue(np.array_equal(self.model.generate([[5, 6, 7]], max_tokens=6)[0].ids, a.ids))  # alone as beside others
        drawn = [self.model.generate(["x"], max_tokens=8, temperature=1.0, seed=s)[0].ids.tolist() for s in (1, 1, 2)]
        self.assertEqual(drawn[0], drawn[1])

    def test_threads_take_turns(self):
        want, got = self.model.score([[5, 6, 7, 8]])[0], []
        threads = [threading.Thread(target=lambda: got.append(self.model.score([[5, 6, 7, 8]])[0])) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        for one in got:
            np.testing.assert_array_equal(one, want)
        self.assertEqual(len(got), 4)

    def test_what_is_refused(self):
        for what, call in {
            "vocabulary": lambda: self.model.score([[10**6]]),
            "max_tokens": lambda: self.model.generate(["x"], max_tokens=0),
            "temperature": lambda: self.model.generate(["x"], temperature=float("nan")),
            "top_p": lambda: self.model.generate(["x"], top_p=0),
            "prompt 0": lambda: self.model.generate([[1.5]]),
            "dtype": lambda: mx.Model("by_command/checkpoint", dtype="int4"),
        }.items():
            with self.assertRaisesRegex(mx.BadInput, what):
                call()
        for text in ("a text", b"bytes"):
            for call in (self.model.score, self.model.generate):
                with self.assertRaisesRegex(TypeError, "a list"):
                    call(text)
        for positions in (-1, 513):
            with self.assertRaisesRegex(mx.BadInput, "positions"):
                mx.Model("by_command/checkpoint", positions=positions)
        self.assertEqual(mx.Model("by_command/checkpoint", positions=512).positions, 512)
        with self.assertRaises(mx.BadInput):
            mx.Model("by_command/checkpoint", adapter="tok")
        with self.assertRaises(mx.Error):
            mx.Model("no_such_folder/here")


class Documents(unittest.TestCase):
    def test_the_pages_examples_run(self):
        hub = WORK / "hub/hub/models--HuggingFaceTB--SmolLM2-135M-Instruct"
        (hub / "refs").mkdir(parents=True)
        (hub / "refs/main").write_text("0123456789abcdef0123456789abcdef01234567")
        shutil.copytree(WORK / "by_command/checkpoint", hub / "snapshots/0123456789abcdef0123456789abcdef01234567")
        for name in ("recipe.yaml", "rows.jsonl"):
            (WORK / "page").mkdir(exist_ok=True)
            shutil.copy(SOURCE / "examples/pool" / name, WORK / "page")
        parts = (SOURCE / "docs/python.md").read_text().split("```python\n")[1:]
        self.assertEqual(len(parts), 2)
        (WORK / "page/example.py").write_text("".join(p.split("```")[0] for p in parts))
        r = subprocess.run([sys.executable, "example.py"], cwd=WORK / "page", capture_output=True, text=True,
                           env={**os.environ, "HF_HOME": str(WORK / "hub")})
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertIn("True out/pool/checkpoint", r.stdout)
        self.assertRegex(r.stdout, r"The pool is open\. \[ *nan")


class Stubs(unittest.TestCase):
    @unittest.skipIf(sys.version_info < (3, 11), "nanobind.stubgen wants typing_extensions there")
    @unittest.skipUnless(importlib.util.find_spec("nanobind"), "nanobind, which writes stubs, is not installed here")
    def test_they_are_what_the_module_says(self):
        made = WORK / "made.pyi"
        subprocess.run([sys.executable, "-m", "nanobind.stubgen", "-q", "-m", "mindxtrain._mindxtrain", "-p", SOURCE / "python/stubs.nb", "-o", made], check=True)
        self.assertEqual(made.read_text(), (SOURCE / "python/mindxtrain/_mindxtrain.pyi").read_text(),
                         f"{sys.executable} -m nanobind.stubgen -m mindxtrain._mindxtrain -p python/stubs.nb -o python/mindxtrain/_mindxtrain.pyi")

    def test_they_name_all_that_the_package_has(self):
        stubs = (SOURCE / "python/mindxtrain/_mindxtrain.pyi").read_text()
        for name in mx.__all__:
            self.assertRegex(stubs, rf"(?m)^(class|def) {name}\b|^{name}: ")
        self.assertNotIn("from mindxtrain import", stubs)  # which imports from here


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
