"""What oneDNN reaches alone on the products of a training step: those of the frozen base, forward and activation gradient (4N; recompute
and LoRA's thin products are not counted as work), each at its best time, weighted by how often the step has it."""
import json, subprocess


def lora_step_products(config, tokens, targets):
    """(m, n, k, transposes, count) of one micro-batch; matrices that read the same input are one product, as the engine stacks them."""
    h, f, layers = config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"]
    d = config.get("head_dim") or h // config["num_attention_heads"]
    q, kv = config["num_attention_heads"] * d, config["num_key_value_heads"] * d
    weights = [(q + 2 * kv, h), (h, q), (2 * f, h), (h, f)]
    products = [(tokens, n, k, "NT", layers) for n, k in weights] + [(tokens, k, n, "NN", layers) for n, k in weights]
    v = config["vocab_size"]
    return products + [(targets, v, h, "NT", 1), (targets, h, v, "NN", 1)]


def onednn_alone(gemm_bench, products, threads, rounds=5):
    args = [f"{m},{n},{k},{t},bf16,{count}" for m, n, k, t, count in products]
    return json.loads(subprocess.run([gemm_bench, "alone", str(rounds), str(threads), *args], check=True, capture_output=True, text=True).stdout)
