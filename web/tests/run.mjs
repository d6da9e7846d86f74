// Coach in a real browser, from the list of recipes to the receipt by keyboard alone, on a tiny model that the test makes; `--model DIR_OR_GGUF --recipe NAME` does the
// journey on a real one. Screenshots of every view in light, dark and at 390 px lie in web/tests/out/. Ends with 77 where a browser is missing.
//
//   node web/tests/run.mjs --binary build/release/apps/mindxtrain/mindxtrain
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { contrast, openTab, press, reach, walk } from "./keyboard.mjs";
import { makeTinyModel } from "./model.mjs";

const here = dirname(fileURLToPath(import.meta.url)), repository = resolve(here, "../..");
const option = (name, otherwise) => { const i = process.argv.indexOf("--" + name); return i < 0 ? otherwise : process.argv[i + 1]; };
const skip = (why) => { console.log("skipped: " + why); process.exit(77); };

const binary = resolve(option("binary", join(repository, "build/release/apps/mindxtrain/mindxtrain")));
const shots = resolve(option("out", join(here, "out")));
const chromium = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync);
if (!chromium) skip("no Chromium (apt-get install chromium)");
let playwright;
try {
  playwright = await import("playwright-core");
} catch {
  skip("no playwright-core (./dev web)");
}
if (!existsSync(binary)) skip(`no binary at ${binary}`);

const free = () => new Promise((done) => { const s = createServer().listen(0, "127.0.0.1", () => { const { port } = s.address(); s.close(() => done(port)); }); });
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

const folder = mkdtempSync(join(tmpdir(), "mxt-coach-"));
const env = { ...process.env, MINDXTRAIN_HOME: join(folder, "home"), MINDXTRAIN_API_KEY: "", OMP_NUM_THREADS: process.env.OMP_NUM_THREADS ?? "2" };
rmSync(shots, { recursive: true, force: true });
mkdirSync(shots, { recursive: true });

class Server {
  async start(args, port, extra = {}) {
    this.port = port ?? (await free());
    this.url = `http://127.0.0.1:${this.port}`;
    this.log = "";
    this.process = spawn(binary, ["serve", "--port", String(this.port), ...args], { env: { ...env, ...extra }, cwd: repository, stdio: ["ignore", "pipe", "pipe"] });
    for (const s of [this.process.stdout, this.process.stderr]) s.on("data", (d) => (this.log += d));
    for (let i = 0; i < 1200; ++i) {
      if (this.process.exitCode !== null) throw new Error("the server ended: " + this.log);
      try {
        if ((await fetch(this.url + "/health")).ok) return this;
      } catch {
        await sleep(50);
      }
    }
    throw new Error("the server does not answer: " + this.log);
  }
  stop(signal = "SIGTERM") {
    return new Promise((done) => {
      if (this.process.exitCode !== null || this.process.signalCode !== null) return done();
      this.process.once("exit", done);
      this.process.kill(signal);
    });
  }
  async json(path, init) {
    return (await fetch(this.url + path, init)).json();
  }
}

const servers = [];
let browser;
try {
  const real = option("model");
  const tiny = real ? null : makeTinyModel(binary, folder, env);
  const model = real ? resolve(real) : tiny.base;
  const jobs = join(folder, "jobs");
  const args = ["--model", model, "--jobs", jobs, "--root", folder, "--drain", "2", ...(real ? ["--root", dirname(model)] : [])];
  let server = await new Server().start(args);
  servers.push(server);
  if ((await fetch(server.url + "/coach/")).status === 503) skip("the binary was built without web/dist (./dev web, then build again)");

  // Without a locale, as in a container or under cron.
  browser = await playwright.chromium.launch({ executablePath: chromium, args: ["--no-sandbox", "--disable-gpu"], env: { ...process.env, LANG: "C", LC_ALL: "C" } });
  const context = await browser.newContext({ viewport: { width: 1360, height: 900 }, colorScheme: "light" });
  const page = await context.newPage();
  const foreign = [], complaints = [];
  context.on("request", (r) => { if (!r.url().startsWith(server.url) && !r.url().startsWith("data:") && !r.url().startsWith("blob:")) foreign.push(r.url()); });
  page.on("console", (m) => { if (m.type() === "error" && !/Failed to load resource|ERR_/.test(m.text())) complaints.push(m.text()); });
  page.on("pageerror", (e) => complaints.push(String(e)));

  // What must hold of every view: contrast, all of it within reach of Tab (where nothing moves meanwhile), names for all that can be reached, one heading of the first rank, no sideways scrolling at 390 px.
  let number = 0;
  const check = async (name, still = true) => {
    if (still) await walk(page, name);
    await contrast(page, name);
    const problems = await page.evaluate(() => {
      const out = [];
      const name = (e) => e.getAttribute("aria-label") || (e.getAttribute("aria-labelledby") && document.getElementById(e.getAttribute("aria-labelledby"))?.textContent) || e.closest("label")?.textContent?.trim() || e.textContent?.trim() || e.getAttribute("title");
      for (const e of document.querySelectorAll("a[href], button, input, select, textarea, [role=tab], [role=img], [role=progressbar]")) if (e.offsetParent !== null && !name(e)) out.push("no name: " + e.outerHTML.slice(0, 120));
      for (const e of document.querySelectorAll("img")) if (!e.hasAttribute("alt")) out.push("no alt: " + e.src);
      if (document.querySelectorAll("h1").length !== 1) out.push("headings of the first rank: " + document.querySelectorAll("h1").length);
      if (!document.documentElement.lang) out.push("no language");
      const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
      if (new Set(ids).size !== ids.length) out.push("an id stands twice");
      return out;
    });
    assert.deepEqual(problems, [], name);
    const label = String(++number).padStart(2, "0") + "-" + name;
    await page.screenshot({ path: join(shots, label + ".png"), fullPage: true });
    await page.emulateMedia({ colorScheme: "dark" });
    await sleep(60);
    await contrast(page, name + ", dark");
    await page.screenshot({ path: join(shots, label + "-dark.png"), fullPage: true });
    await page.emulateMedia({ colorScheme: "light" });
    await page.setViewportSize({ width: 390, height: 844 });
    await sleep(120);
    const wide = await page.evaluate(() => {
      const limit = document.documentElement.clientWidth;
      if (document.documentElement.scrollWidth <= limit) return [];
      const sideways = `the page scrolls to ${document.documentElement.scrollWidth} px`;
      return [sideways, ...[...document.querySelectorAll("main *")].filter((e) => e.getBoundingClientRect().right > limit + 1 && !e.closest(".scroll, .tabs, .log, .editor")).slice(0, 5).map((e) => e.outerHTML.slice(0, 140))];
    });
    assert.deepEqual(wide, [], `${name}: wider than 390 px`);
    await page.screenshot({ path: join(shots, label + "-390.png"), fullPage: true });
    await page.setViewportSize({ width: 1360, height: 900 });
    console.log("view", name);
  };
  const go = async (hash) => { await page.goto(`${server.url}/coach/${hash}`); await page.waitForSelector("h1"); };
  const tab = (name) => openTab(page, name);

  // Pick a recipe.
  await go("");
  await page.getByRole("heading", { name: "Recipes", exact: true }).waitFor();
  assert.ok((await page.locator(".rows > li").count()) >= 15, "the recipes of the binary are listed");
  assert.ok((await page.locator(".rows .lacking").count()) > 0, "recipes that cannot be trained here say why");
  await check("recipes");
  const recipe = option("recipe", "quickstart_cpu");
  await press(page, new RegExp(recipe), "a");
  await page.locator(".editor .cm-content").waitFor();
  await page.getByText("Valid", { exact: true }).waitFor();

  // Edit: what is wrong appears as it is typed, with its place and a remedy.
  const replace = async (text) => {
    await reach(page, "Recipe, YAML");
    await page.keyboard.press("Control+A");
    await page.evaluate((t) => { const d = new DataTransfer(); d.setData("text/plain", t); const root = document.querySelector(".editor").shadowRoot; root.querySelector(".cm-content").dispatchEvent(new ClipboardEvent("paste", { clipboardData: d, bubbles: true, cancelable: true })); }, text);
  };
  // What stands there now is valid: the verdict comes a moment after the last key, and until then the one before shows.
  let asked = 0;
  const isCheck = (r) => r.url().endsWith("/coach/api/check");
  page.on("request", (r) => { if (isCheck(r)) ++asked; });
  for (const end of ["requestfinished", "requestfailed"]) page.on(end, (r) => { if (isCheck(r)) --asked; });
  const valid = async () => {
    do await sleep(400); while (asked > 0);
    await page.getByText("Valid", { exact: true }).waitFor();
  };
  const builtin = (await server.json(`/coach/api/recipes/${recipe}`)).text;
  const small = real ? builtin.replace(/name: \.\/weights\/\S+/, `name: ${model}`).replace(/\n    epochs: 1/, `\n    max_steps: ${option("steps", "12")}`).replace("rows: 90", "rows: 20").replace("test_rows: 60", "test_rows: 4").replace("limit: 60", "limit: 4") + `\nreceipt:\n  output: ${join(folder, "receipt.json")}\n` : tiny.quick;
  await replace(small.replace("train:\n", "train:\n  bach: {per_device: 4}\n").replace("seq_len: ", "seq_len: 1"));
  await page.locator(".issues li").first().waitFor();
  assert.match(await page.locator(".issues").innerText(), /bach/);
  assert.ok(await page.locator(".editor .cm-lint-marker-error").count(), "the line is marked");
  await check("edit-with-a-mistake");
  await press(page, /bach/, "button");
  assert.ok(await page.evaluate(() => window.focused().matches(".cm-content")), "a problem leads to its place in the editor");
  await page.keyboard.press("Escape");
  await page.keyboard.press("Shift+Tab");
  await replace(small);
  await valid();
  // Completion from the schema.
  await page.keyboard.press("Control+End");
  await page.keyboard.type("eva");
  await page.locator(".editor .cm-tooltip-autocomplete").waitFor();
  assert.match(await page.locator(".editor .cm-tooltip-autocomplete").innerText(), /eval/);
  await page.keyboard.press("Escape");
  for (let i = 0; i < 3; ++i) await page.keyboard.press("Backspace");
  await valid();
  await check("edit");

  // A path outside the server's folders is refused as it is typed.
  await replace(small.replace(/path: .*rows\.jsonl/, "path: /etc/passwd").replace(/perplexity_path: .*/, "perplexity_path: /etc/passwd"));
  await page.locator(".issues li").first().waitFor();
  assert.match(await page.locator(".issues").innerText(), /\/etc\/passwd lies outside/);
  await replace(small);
  await valid();

  // Plan, preflight, data.
  await tab("Plan");
  await page.getByText(/^Fits: /).waitFor({ timeout: 120000 });
  await page.waitForFunction(() => ![...document.querySelectorAll("table td")].some((e) => e.textContent === "…"), null, { timeout: 240000 });
  await check("plan");
  await tab("Preflight");
  await page.locator(".checks li").first().waitFor();
  await check("preflight");
  await tab("Data");
  await page.locator("mark").first().waitFor({ timeout: 120000 });
  const trained = await page.locator("article mark").allInnerTexts();
  assert.ok(trained.length > 0 && trained.some((t) => (real ? t.length > 3 : /likes/.test(t))), "what the assistant says is trained on");
  await check("data");

  // Launch and watch.
  await press(page, "Start run", "button");
  await page.waitForURL(/#\/runs\/job-/);
  const key = page.url().split("/").pop();
  await page.locator(".chart canvas").first().waitFor();
  await page.waitForFunction(() => /Step \d+/.test(document.querySelector("main").innerText), null, { timeout: 300000 });
  await check("watch", false);
  // A view that refreshes itself leaves the keyboard where it is.
  const running = async () => (await server.json(`/coach/api/runs/${key}`)).can.stop;
  if (await running()) await reach(page, "Stop", "button").catch(async (e) => assert.ok(!(await running()), e.message));
  await sleep(2000);
  const held = await page.evaluate(() => window.nameOf(window.focused()));
  if (await running()) assert.equal(held, "Stop");
  // Stop, then kill the server and start it again: the list is intact; resume.
  if (await running()) {
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => /cancelled|finished/.test(document.querySelector(".state").textContent), null, { timeout: 120000 });
  }
  const before = await server.json(`/coach/api/runs/${key}`);
  await server.stop("SIGKILL");
  server = await new Server().start(args, server.port);
  servers.push(server);
  const after = await server.json(`/coach/api/runs/${key}`);
  assert.equal(after.state, before.state, "the job is as it was before the restart");
  await page.reload();
  await page.locator(".state").first().waitFor();
  if (after.state === "cancelled") {
    await check("stopped");
    await press(page, "Resume", "button");
  }
  await page.waitForFunction(() => document.querySelector(".state")?.textContent === "finished", null, { timeout: 600000 });
  await sleep(400);
  await check("finished");
  const done = await server.json(`/coach/api/runs/${key}`);
  assert.equal(done.last_step.step, done.steps);
  await tab("Probe");
  await page.locator(".call").first().waitFor();
  assert.ok((await page.locator(".call .chosen").count()) > 0, "choices are marked");
  await check("probe-of-run");
  await tab("Data");
  await page.locator("mark").first().waitFor();
  await tab("Log");
  await page.waitForFunction(() => document.querySelector(".log")?.textContent.includes("receipt"), null, { timeout: 10000 });
  await check("log");
  // On the way the keys pass the probe, whose plan comes late: it must not stand in the receipt's place.
  await page.route(/\/plan$/, async (route) => { await sleep(1000); await route.continue().catch(() => {}); });
  await tab("Receipt");
  await page.getByText("Verified", { exact: true }).waitFor({ timeout: 60000 });
  await sleep(1500);
  assert.ok(await page.getByText("Verified", { exact: true }).isVisible(), "a late answer of another tab is shown");
  await page.unroute(/\/plan$/);
  await check("receipt-of-run");

  // A kill in the middle of a job: the next server finds it and it runs to its end.
  const second = await server.json("/coach/api/jobs", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ recipe: small.replace(/run_name: .*/, "run_name: second").replace(/lr: .*/, "lr: 7.0e-4").replace(/receipt\.json/, "second.json") }) });
  for (let i = 0; i < 1200; ++i) {
    const r = await server.json(`/coach/api/runs/${second.id}`);
    if (r.last_step || r.state === "failed") break;
    await sleep(50);
  }
  await server.stop("SIGKILL");
  server = await new Server().start(args, server.port);
  servers.push(server);
  assert.equal((await server.json("/coach/api/runs")).filter((r) => r.job).length, 2, "the list is intact");
  for (let i = 0; i < 2400 && !/finished|failed/.test((await server.json(`/coach/api/runs/${second.id}`)).state); ++i) await sleep(100);
  const ended = await server.json(`/coach/api/runs/${second.id}`);
  assert.equal(ended.state, "finished", ended.message);

  // Runs, and two of them beside each other.
  await go("#/runs");
  await page.locator("tbody tr").nth(1).waitFor();
  await check("runs");
  const told = (what) => ({ method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(what) });
  // What is said of a run, who is shown, and what is left out of the list.
  const rows = () => page.locator("tbody tr").count();
  const listed = await rows();
  await server.json(`/coach/api/runs/${key}/note`, told({ name: "the one to keep", tags: ["paper"] }));
  await page.getByRole("link", { name: "the one to keep" }).waitFor();
  await page.getByRole("searchbox", { name: "Find runs" }).fill("keep");
  await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 1);
  await page.getByRole("searchbox", { name: "Find runs" }).fill("");
  await page.getByLabel("Tag", { exact: true }).selectOption("paper");
  await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 1);
  await page.getByLabel("Tag", { exact: true }).selectOption("");
  await server.json(`/coach/api/runs/${key}/note`, told({ archived: true }));
  await page.waitForFunction((n) => document.querySelectorAll("tbody tr").length === n - 1, listed);
  await server.json(`/coach/api/runs/${key}/note`, told({ archived: false, name: "" }));
  await page.waitForFunction((n) => document.querySelectorAll("tbody tr").length === n, listed);
  await press(page, /^Compare \S+, /, "input", "Space");
  await press(page, /^Compare \S+, /, "input", "Space");
  assert.equal(await page.locator("tbody input:checked").count(), 2);
  await press(page, "Compare two", "button");
  await page.waitForURL(/#\/compare\//);
  await page.getByText("train.optimizer.lr").waitFor();
  await page.waitForFunction(() => document.querySelector(".chart .hidden")?.textContent.includes("now"));
  await check("compare");

  // Try base and tuned.
  await go(`#/try/${key}`);
  await page.getByRole("textbox", { name: "Message" }).waitFor({ timeout: 180000 });
  await reach(page, "Longest answer, tokens", "input");
  await page.keyboard.press("Control+A");
  await page.keyboard.type("24");
  await reach(page, "Message", "textarea");
  await page.keyboard.type("What does Ada like?");
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: "Send" }).waitFor({ timeout: 120000 });
  await page.waitForFunction(() => [...document.querySelectorAll(".answer header span")].every((e) => /tokens/.test(e.textContent)), null, { timeout: 60000 });
  const answers = await page.locator(".answer .turn:not(.user)").allInnerTexts();
  assert.equal(answers.length, 2);
  console.log("base:", JSON.stringify(answers[0]), "tuned:", JSON.stringify(answers[1]));
  assert.notEqual(answers[0], answers[1], "tuning has changed the answer");
  if (!real) assert.match(answers[1], /like/, "the tuned model has learned something of its rows");
  await check("try");

  // A receipt dropped in: whole, tampered with, and of another machine.
  const manifest = join(jobs, key, "run", "manifest.json"), text = readFileSync(manifest, "utf8");
  const drop = async (content) => {
    await page.locator(".drop").waitFor();
    await page.evaluate((t) => { const d = new DataTransfer(); d.items.add(new File([t], "manifest.json", { type: "application/json" })); document.querySelector(".drop").dispatchEvent(new DragEvent("drop", { dataTransfer: d, bubbles: true, cancelable: true })); }, content);
    await page.locator(".verdict strong, .note.error").first().waitFor({ timeout: 60000 });
    return page.locator(".verdict strong, .note.error").first().innerText();
  };
  await go("#/receipt");
  assert.equal(await drop(text), "Verified");
  await check("receipt");
  await go("#/receipt");
  await page.reload();
  assert.equal(await drop(text.replace(/("train_seconds": ?)[\d.]+/, "$112345.5")), "It does not hold");
  await check("receipt-tampered");
  await page.reload();
  assert.match(await drop("{}"), /no manifest/);
  const checkpoint = join(jobs, key, "run", "checkpoint", "adapter_config.json"), kept = readFileSync(checkpoint, "utf8");
  writeFileSync(checkpoint, kept + " ");
  await page.reload();
  assert.equal(await drop(text), "It does not hold");
  assert.match(await page.locator("main").innerText(), /adapter_config\.json/);
  writeFileSync(checkpoint, kept);

  // A policy that samples: what its answers are worth, and the answers.
  if (!real) {
    const sampled = await server.json("/coach/api/jobs", told({ recipe: tiny.sampled }));
    assert.ok(sampled.id, JSON.stringify(sampled));
    for (let i = 0; i < 1200 && !/finished|failed/.test((await server.json(`/coach/api/runs/${sampled.id}`)).state); ++i) await sleep(100);
    const policy = await server.json(`/coach/api/runs/${sampled.id}`);
    assert.equal(policy.state, "finished", policy.message);
    await go(`#/runs/${sampled.id}`);
    await tab("Rewards");
    await page.locator("article .answers pre").first().waitFor({ timeout: 60000 });
    await page.waitForFunction(() => document.querySelectorAll(".chart canvas").length >= 5, null, { timeout: 10000 });
    const titles = await page.locator(".chart figcaption").allInnerTexts();
    for (const title of ["Reward", "Reward by part", "Answer length, tokens", "Clipped share"]) assert.ok(titles.includes(title), `${title} of ${titles}`);
    assert.equal(await page.locator("article .answers > li").count(), 4);
    assert.match(await page.locator("article .answers > li p").first().innerText(), /reward .* advantage .* tokens .* answer .* short/);
    await press(page, "Previous", "button");
    await page.waitForFunction(() => document.querySelector('input[aria-label="Step"]').value === "3", null, { timeout: 10000 });
    await check("rewards");
    const missing = await fetch(`${server.url}/coach/api/runs/${sampled.id}/samples?step=99`);
    assert.equal(missing.status, 400);
    assert.match(await missing.text(), /nothing was sampled for it/);
  }

  // A plan dropped in, and the machine.
  await go("#/probe");
  await page.locator(".drop").waitFor();
  await page.evaluate((t) => { const d = new DataTransfer(); d.items.add(new File([t], "plan.json")); document.querySelector(".drop").dispatchEvent(new DragEvent("drop", { dataTransfer: d, bubbles: true, cancelable: true })); }, readFileSync(join(jobs, key, "run", "plan.json"), "utf8"));
  await page.locator(".call").first().waitFor();
  await check("probe");
  await go("#/machine");
  await page.getByRole("heading", { name: "This machine" }).waitFor();
  await check("machine");

  // With keys a token is asked for, once, and kept in the tab alone.
  const guarded = await new Server().start(["--jobs", join(folder, "jobs2")], undefined, { MINDXTRAIN_API_KEY: "a-token-of-the-test-0001" });
  servers.push(guarded);
  const guest = await browser.newContext({ viewport: { width: 390, height: 844 } });
  const door = await guest.newPage();
  await door.goto(guarded.url + "/coach/");
  await door.getByRole('textbox', { name: 'Token' }).waitFor();
  await door.screenshot({ path: join(shots, "token-390.png") });
  await door.getByRole('textbox', { name: 'Token' }).fill("wrong-token-wrong-token");
  await door.keyboard.press("Enter");
  await door.getByRole('textbox', { name: 'Token' }).fill("a-token-of-the-test-0001");
  await door.keyboard.press("Enter");
  await door.locator(".rows > li").first().waitFor();
  assert.equal(await door.evaluate(() => localStorage.length), 0, "nothing of the token outlives the tab");

  assert.deepEqual(foreign, [], "the page asks nobody else");
  assert.deepEqual(complaints, [], "nothing on the console, no breach of the policy");
  console.log(`all checks hold; screenshots in ${shots}`);
} catch (e) {
  const open = browser?.contexts()[0]?.pages()[0];
  if (open) {
    await open.screenshot({ path: join(shots, "failure.png"), fullPage: true }).catch(() => undefined);
    console.error(await open.locator("main").innerText().catch(() => ""));
  }
  throw e;
} finally {
  await browser?.close();
  for (const s of servers) await s.stop("SIGTERM").catch(() => undefined);
  rmSync(folder, { recursive: true, force: true });
}
