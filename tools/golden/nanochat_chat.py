#!/usr/bin/env python3
"""nanochat's own conversations, calculator and bits per byte, for tests/data/nanochat_test.cc, tests/infer/calculator_test.cc and
tests/e2e/nanochat_test.cc: nanochat_chat.py NANOCHAT_CHECKOUT (needs torch, tiktoken, rustbpe)
"""
import json
import os
import pathlib
import random
import sys

os.environ["NANOCHAT_DTYPE"] = "float32"
os.environ["TORCHDYNAMO_DISABLE"] = "1"
sys.path.insert(0, sys.argv[1])
import torch  # noqa: E402
from nanochat.engine import use_calculator  # noqa: E402
from nanochat.gpt import GPT, GPTConfig  # noqa: E402
from nanochat.loss_eval import evaluate_bpb  # noqa: E402
from nanochat.tokenizer import RustBPETokenizer  # noqa: E402

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/nanochat/chat"
VOCABULARY = 300
CORPUS = [
    "What is 13 + 28? Weng earns $12 an hour for babysitting. Yesterday she did 50 minutes of babysitting.",
    "The sum is the answer, and the answer is the sum of the two numbers; the product is another number.",
    "How many letters are in strawberry? Count the letters, then answer with the number alone.\n\nThank you.",
    "Ünïcödé, emoji 🙂 and tabs\tare bytes too. Naïve café, 12,345.678 and 0.5; (a - b) * c / d.",
]


def said(*parts):
    return [{"type": t, "text": x} for t, x in parts]


CONVERSATIONS = [
    [("user", "What is 13 + 28?"), ("assistant", said(("python", "13 + 28"), ("python_output", "41"), ("text", "41")))],
    [("user", "Hello"), ("assistant", "Hello. What is the sum?"), ("user", "The two numbers"), ("assistant", "41")],
    [("system", "Answer with the number alone."), ("user", "How many letters?"), ("assistant", "11")],
    [("user", "🙂 café <|user_end|> <|bos|>"), ("assistant", "Naïve <|python_start|>1<|python_end|>\n\n")],
    [("user", " two  spaces "), ("assistant", said(("text", "She earns 12/60 = $"), ("python", "12/60"), ("python_output", "0.2"),
      ("text", "0.2 a minute.\nThen 0.2*50 = $"), ("python", "0.2*50"), ("python_output", "10"), ("text", "10.\n#### 10")))],
    [("user", "strawberry"), ("assistant", said(("python", "'strawberry'.count('r')"), ("python_output", "3")))],
    [("user", "no result"), ("assistant", said(("text", "Try "), ("python", "1/0"), ("text", " and give up.")))],
    [("system", ""), ("user", ""), ("assistant", "")],
]

FIXED = """1 + 2|12/60|0.2*50|1,234*2|7//2|-7//2|7//-2|7.5//2|-7.5//2|1e3|2**3|2* *3|2 ** 3|(1+2)*3|((((1))))|(|)|()(|1/0|1//0|0.0/0|1.0//0|
|   |.|..|1.|.5|1..2|1.2.3|007|00|0|05.5|1 2|5(3)|--5|+-+5|5--5|5 - - 5|5*-3|5/-3|10/2|10/4|1/3|2/3|0.1+0.2|1e|100000000000000000000*3|
99999999999999999999999999999999|123456789012345678901234567890/7|9007199254740993/1|9007199254740993*1.0|9007199254740993/3|18014398509481985/2|
0.1*3|1.0|1.10|100.0*100|1000000.0*10000000000|12345678901234567.0|0.0001|0.00001|0.00012|123456.789e|3.0//1|-0.0|0.0*-1|-0.0//1|5//0.3|1//0.1|-1//0.1|
+|-|*|/|//|1+|1 +  2 |\t1+1|1+1\n|(1+2|1+2)|2(3)|2.(3)|1 / / 2|1///2|1 // 2|6*7=42|$5+3|50%|x+1|1_000|0x10|1j|'abc'|'abc'.count('a')|"abc".count("c")|
'strawberry'.count('r')|"strawberry".count('r')|'aaaa'.count('aa')|'abc'.count('')|''.count('')|'abc' 'abc'.count('a')|('abc').count('b')|('abc'.count('b'))|
'Abc'.lower().count('a')|'abc'.upper().count('A')|' a '.strip().count(' ')|'a b'.count(' ')|'abc'.count('a').count('b')|'abc'.count(a)|'abc'.count(1)|'abc'.count|
'abc'.count('a'|'abc'.count('a'))|'abc'.find('a')|'profile'.count('f')|'direction'.count('i')|'evaluate'.count('e')|'a,b,c'.count('b')|'it's'.count('t')|"it's".count('t')|
'''abc'''.count('b')|'abc' . count ( 'b' )|'abc'.count('b') + 1|len('abc')|'x'.__class__|'abc'.title().count('A')|abc.count('a')|'a_b'.count('_')|'1.5'.count('.')|
1/7*7|2/3*3|10/3//1|0.3//0.1|1-0.9|1.5*4|4/2*2|3*(2+(1-(4/2)))|100/3|999*999|12.50*4|5.0*2|1.005*1000|0.07*100|33.3333*3|48/2|20*.01*50|.75*10|-.5|- .5|+.5""".split("|")


def expressions():
    out = [e for e in FIXED]
    rng = random.Random(7)

    def value(depth):
        if depth == 0 or rng.random() < 0.3:
            kind = rng.randrange(4)
            return [str(rng.randrange(100)), f"{rng.random() * 100:.2f}", f"{rng.randrange(10**6):,}", f".{rng.randrange(1, 99)}"][kind]
        a, b = value(depth - 1), value(depth - 1)
        op = rng.choice(["+", "-", "*", "/", "//", " + ", " - ", " * ", " / "])
        text = rng.choice(["", "", "", "-"]) + a + op + b
        return f"({text})" if rng.random() < 0.5 else text

    out += [value(rng.randrange(1, 4)) for _ in range(400)]
    letters = "0123456789*+-/.() "
    out += ["".join(rng.choice(letters) for _ in range(rng.randrange(1, 9))) for _ in range(400)]
    return out


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    tok = RustBPETokenizer.train_from_iterator(iter(CORPUS), VOCABULARY)
    rows = []
    for c in CONVERSATIONS:
        messages = [{"role": r, "content": x} for r, x in c]
        ids, mask = tok.render_conversation({"messages": messages})
        last = messages[-1]
        prompt = tok.render_for_completion({"messages": messages}) if last["role"] == "assistant" else None
        rows.append({"messages": messages, "ids": ids, "mask": mask, "prompt": prompt})
    calculator = []
    for e in expressions():
        try:
            r = use_calculator(e)
            calculator.append([e, None if r is None else str(r)])
        except RecursionError:
            pass
    # () and ... are Python's empty tuple and its ellipsis: no numbers, and not computed here.
    calculator = [c for c in calculator if c[1] is None or c[1][0] not in "(E"]

    torch.manual_seed(3)
    shape = dict(sequence_len=64, vocab_size=VOCABULARY, n_layer=2, n_head=2, n_kv_head=1, n_embd=32, window_pattern="SL")
    model = GPT(GPTConfig(**shape))
    model.init_weights()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.05)
    torch.save(model.state_dict(), OUT / "model_000001.pt")
    (OUT / "meta_000001.json").write_text(json.dumps({"step": 1, "val_bpb": None, "model_config": shape}, indent=2) + "\n")
    # Rows of T + 1: texts with the BOS in front, one with ignored targets.
    bos = tok.get_bos_token_id()
    stream = [i for t in CORPUS * 3 for i in [bos] + tok.encode(t)]
    length = shape["sequence_len"] + 1
    texts = [stream[k * length : (k + 1) * length] for k in range(len(stream) // length)]
    labels = [list(t) for t in texts]
    for k in range(5, 20):
        labels[1][k] = -100
    x = torch.tensor([t[:-1] for t in texts])
    y = torch.tensor([t[1:] for t in labels])
    y[y < 0] = -1
    sizes = [len(tok.enc.decode_single_token_bytes(i)) for i in range(VOCABULARY)]
    for s in tok.get_special_tokens():
        sizes[tok.encode_special(s)] = 0
    bpb = evaluate_bpb(model, [(x, y)], 1, torch.tensor(sizes))
    golden = {"corpus": CORPUS, "vocab_size": VOCABULARY, "conversations": rows, "calculator": calculator,
              "bpb": {"rows": [{"input_ids": a, "labels": b} for a, b in zip(texts, labels)], "value": bpb}}
    (OUT / "chat.json").write_text(json.dumps(golden, ensure_ascii=False, separators=(",", ":")).replace('},{"', '},\n{"') + "\n")


main()
