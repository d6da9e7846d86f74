// `mindxtrain serve` for the clients' scripts, as server.py: started on a free port, ended with its drain.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const root = resolve(here, "../..");
export const option = (name, otherwise) => { const i = process.argv.indexOf("--" + name); return i < 0 ? otherwise : process.argv[i + 1]; };
const template = "{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
export const weather = { type: "object", properties: { city: { type: "string", maxLength: 12 }, unit: { enum: ["C", "F"] } }, required: ["city", "unit"], additionalProperties: false };
export const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

function skip(why) {
  console.log("skipped:", why);
  process.exit(77);
}

// Packages of --packages (default: those that Node finds from here), or the end of the script with the reason.
export async function need(...names) {
  const require = createRequire(join(resolve(option("packages", here)), "x.js"));
  const found = [];
  for (const name of names) {
    let path;
    try {
      path = require.resolve(name);
    } catch {
      skip(`no package ${name} (npm install ${name}, then --packages FOLDER)`);
    }
    found.push(await import(pathToFileURL(path)));
  }
  return found;
}

export async function withServer(checks) {
  const model = option("model", join(root, "weights/SmolLM2-135M-Instruct.gguf"));
  if (!existsSync(model)) skip(`no weights at ${model}: ./dev quickstart fetches them`);
  const port = await new Promise((done) => { const s = createServer().listen(0, "127.0.0.1", () => { const { port } = s.address(); s.close(() => done(port)); }); });
  const folder = mkdtempSync(join(tmpdir(), "mxt-clients-"));
  writeFileSync(join(folder, "chat.jinja"), template);
  const server = spawn(option("binary", join(root, "build/release/apps/mindxtrain/mindxtrain")), ["serve", "--model", model, "--name", "smol", "--port", String(port), "--max-model-len", "2048", "--chat-template", join(folder, "chat.jinja"), "--no-coach"], { stdio: "inherit" });
  const url = `http://127.0.0.1:${port}`;
  try {
    for (let i = 0; ; ++i) {
      try {
        if ((await fetch(url + "/health")).ok) break;
      } catch {
        assert.ok(i < 1200 && server.exitCode === null, "the server does not answer");
        await sleep(50);
      }
    }
    await checks(url);
    console.log("all checks hold");
  } finally {
    server.kill("SIGTERM");
    await new Promise((done) => server.once("exit", done));
    rmSync(folder, { recursive: true, force: true });
  }
}
