"""`mindxtrain serve` for the clients' scripts: started on a free port, ended with its drain."""
import argparse, importlib, os, signal, socket, subprocess, sys, tempfile, time, urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# SmolLM2's own has no place for tools.
TEMPLATE = ("{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
            "{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
WEATHER = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}, "unit": {"enum": ["C", "F"]}}, "required": ["city", "unit"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Weather of a city", "parameters": WEATHER}}]


def skip(why):
    print("skipped:", why)
    sys.exit(77)


def need(*modules):
    """The modules, or the end of the script with the reason."""
    found = []
    for m in modules:
        try:
            found.append(importlib.import_module(m))
        except ImportError as e:
            skip(f"{e}: pip install {m.split('.')[0].replace('_', '-')}")
    return found if len(found) > 1 else found[0]


def arguments(**more):
    p = argparse.ArgumentParser()
    p.add_argument("--binary", default=ROOT + "/build/release/apps/mindxtrain/mindxtrain")
    p.add_argument("--model", default=ROOT + "/weights/SmolLM2-135M-Instruct.gguf", help="SmolLM2 as a folder or a GGUF file")
    for name, kind in more.items():
        p.add_argument("--" + name, **({"action": "store_true"} if kind is bool else {"type": type(kind), "default": kind}))
    a = p.parse_args()
    if not os.path.exists(a.model):
        skip(f"no weights at {a.model}: ./dev quickstart fetches them")
    return a


class Server:
    """with Server(binary, model) as s: s.url …"""

    def __init__(self, binary, model, *args, template=TEMPLATE, positions="2048"):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        if template:
            self.template = tempfile.NamedTemporaryFile("w", suffix=".jinja")
            self.template.write(template)
            self.template.flush()
            args += ("--chat-template", self.template.name)
        self.process = subprocess.Popen([binary, "serve", "--model", model, "--port", str(self.port), "--max-model-len", positions, "--no-coach", *args])
        for _ in range(1200):
            try:
                urllib.request.urlopen(self.url + "/health").close()
                return
            except OSError:
                assert self.process.poll() is None, "the server ended"
                time.sleep(0.05)
        raise AssertionError("the server does not answer")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0 or error[0], "a drain ends with 0"
