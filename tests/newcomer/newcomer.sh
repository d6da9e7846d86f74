#!/usr/bin/env bash
# What somebody does on the first day, word for word as README and docs/ say it, on a model so small that it takes seconds: it stands in the
# Hub's cache under the name that the commands use. Commands of the documents that are not here are in not_run.txt, each with the reason.
# usage: newcomer.sh MINDXTRAIN EXAMPLES_POOL
set -euo pipefail
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; rm -rf "$work"' EXIT
mkdir "$work/bin" "$work/home"
ln -s "$(realpath "$1")" "$work/bin/mindxtrain"
cp "$2"/rows.jsonl "$2"/recipe.yaml "$work/"
export PATH="$work/bin:$PATH" HOME="$work/home" HF_HOME="$work/hub" HF_HUB_OFFLINE=1 MINDXTRAIN_HOME="$work/home/mxt"
unset HF_TOKEN HF_ENDPOINT HF_HUB_CACHE XDG_CACHE_HOME XDG_DATA_HOME 2>/dev/null || true
cd "$work"
say() { printf '== %s\n' "$*"; }
expect() { grep -q -- "$1" "$2" || { echo "newcomer: no \"$1\" in what was said:"; cat "$2"; exit 1; }; }

say "the stand-in: a vocabulary and a model of random weights, two steps old"
sed 's/[{}"]/ /g' rows.jsonl >corpus.txt
mindxtrain tokenizer train --input corpus.txt --vocab-size 300 --special '<|end|>' --special '<|user|>' --special '<|assistant|>' --special '<|system|>' --out tok
cat >base.yaml <<'Y'
meta: {project: pool, run_name: base}
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
  schedule: {max_steps: 2}
  batch: {per_device: 1, grad_accum: 1}
Y
mindxtrain train base.yaml --out base >base.log 2>&1 || { cat base.log; exit 1; }
hub=$HF_HOME/hub/models--HuggingFaceTB--SmolLM2-135M-Instruct
commit=0123456789abcdef0123456789abcdef01234567
mkdir -p "$hub/refs" "$hub/snapshots"
printf %s $commit >"$hub/refs/main"
cp -r base/checkpoint "$hub/snapshots/$commit"
# shellcheck disable=SC2016
printf '%s' '{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}' >"$hub/snapshots/$commit/chat_template.jinja"

say "the first day"
mindxtrain doctor >said; expect oneDNN said
mindxtrain version >said; expect "^cpu" said
mindxtrain init --list >said; expect quickstart_cpu said
mindxtrain validate recipe.yaml >said 2>&1; expect valid said
mindxtrain plan recipe.yaml >said 2>&1; expect memory said
mindxtrain run recipe.yaml --out out/pool >said 2>&1 || { cat said; exit 1; }
expect "receipt         verified" said
mindxtrain receipt out/pool/manifest.json >said; expect "run" said
mindxtrain receipt out/pool >said
mindxtrain receipt out/pool --config recipe.yaml >said
echo "Is the pool open on Sunday?" | mindxtrain chat --model smollm2-135m-instruct --adapter out/pool/checkpoint >said 2>&1 || { cat said; exit 1; }
mindxtrain cid out/pool/checkpoint >said; expect "^b" said
mindxtrain runs list >said; expect answers said
mindxtrain key new ~/.mindxtrain.key >said
mindxtrain receipt keygen --help >said
mindxtrain export recipe.yaml --for trl --out out/trl >said 2>&1 || { cat said; exit 1; }
[ "$(wc -l <out/trl/data/train.jsonl)" = 20 ]
mindxtrain export recipe.yaml --for trl --data out/pool/dataset --out out/trl >said 2>&1 || { cat said; exit 1; }
grep -q input_ids out/trl/data/train.jsonl
mindxtrain export recipe.yaml --for axolotl --out out/axolotl >said 2>&1
mindxtrain init hopper_qwen3_8b_lora --out r.yaml >said 2>&1

say "serve and ask"
port=$((20000 + RANDOM % 20000))
mindxtrain serve --model smollm2-135m-instruct --adapter tuned=out/pool/checkpoint --port $port >served 2>&1 &
server=$!
for _ in $(seq 300); do curl -s "http://127.0.0.1:$port/health" >/dev/null && break; sleep 0.1; done
curl -s "http://127.0.0.1:$port/v1/chat/completions" -d '{"messages":[{"role":"user","content":"Hello"}],"max_tokens":4}' >said
expect '"choices"' said
curl -s "http://127.0.0.1:$port/v1/models" >said; expect tuned said
kill "$server"; wait "$server" || true
server=

say "what was tampered with is named"
printf x >>out/pool/checkpoint/adapter_config.json
rc=0; mindxtrain receipt out/pool/manifest.json >said 2>&1 || rc=$?
[ $rc = 2 ]; expect adapter_config.json said
echo "newcomer: all is as the documents say"
