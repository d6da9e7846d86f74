// Coach without a mouse: what Tab reaches, whether it shows, and whether what is written can be read.
import assert from "node:assert/strict";

// In the page: the element that has the keyboard, inside a shadow root too, and what it is called.
const install = () => {
  window.focused = () => {
    let e = document.activeElement;
    while (e?.shadowRoot?.activeElement) e = e.shadowRoot.activeElement;
    return e;
  };
  window.nameOf = (e) => (e.getAttribute("aria-label") ?? (e.closest("label")?.textContent || e.textContent || e.getAttribute("title") || "")).trim();
};
const prepare = (page) => page.evaluate(install);

// Presses Tab until what it reaches has that name (a text: the beginning of it).
export async function reach(page, name, tag = "") {
  await prepare(page);
  const [source, flags] = name instanceof RegExp ? [name.source, name.flags] : ["^" + name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), ""];
  for (let i = 0; i < 300; ++i) {
    if (await page.evaluate(() => window.focused()?.matches(".cm-content"))) await page.keyboard.press("Escape");
    await page.keyboard.press("Tab");
    if (await page.evaluate(([s, f, t]) => { const e = window.focused(); return e !== document.body && (!t || e.tagName === t.toUpperCase()) && new RegExp(s, f).test(window.nameOf(e)); }, [source, flags, tag])) return;
  }
  throw new Error(`Tab does not reach ${name}`);
}
export async function press(page, name, tag = "", key = "Enter") {
  await reach(page, name, tag);
  await page.keyboard.press(key);
}
// A tab by the arrow keys, from the one that is open.
export async function openTab(page, name) {
  await prepare(page);
  for (let i = 0; i < 300; ++i) {
    await page.keyboard.press("Tab");
    if (await page.evaluate(() => window.focused()?.matches(".cm-content"))) await page.keyboard.press("Escape");
    if (await page.evaluate(() => window.focused()?.getAttribute("role") === "tab")) break;
  }
  for (let i = 0; i < 12; ++i) {
    if (await page.evaluate((n) => window.focused()?.getAttribute("role") === "tab" && window.nameOf(window.focused()).startsWith(n), name)) return;
    await page.keyboard.press("ArrowRight");
  }
  throw new Error(`the arrow keys do not reach the tab ${name}`);
}

// Tab goes once through all that can be used and comes out at the end; each stop shows, and lies where it can be seen.
export async function walk(page, view) {
  await prepare(page);
  await page.evaluate(() => {  // from before the first
    window.seen = new Set();
    window.start = document.createElement("span");
    window.start.tabIndex = -1;
    document.body.prepend(window.start);
    window.start.focus();
  });
  const problems = [];
  for (let i = 0; ; ++i) {
    assert.ok(i < 600, `${view}: Tab does not come to an end`);
    if (await page.evaluate(() => window.focused()?.matches(".cm-content"))) await page.keyboard.press("Escape");
    await page.keyboard.press("Tab");
    if (await page.evaluate(() => window.focused()?.matches(".cm-content"))) await page.locator(".cm-editor.cm-focused").waitFor();  // drawn a moment later
    const at = await page.evaluate(() => {
      const e = window.focused();
      if (!e || e === document.body || window.seen.has(e)) return { end: true };
      window.seen.add(e);
      const frame = e.closest(".cm-editor") ?? e, s = getComputedStyle(frame), r = frame.getBoundingClientRect();
      const shown = s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 1;
      const there = r.width > 0 && r.height > 0 && r.bottom > 0 && r.top < innerHeight && r.right > 0 && r.left < innerWidth;
      return { what: e.outerHTML.slice(0, 100), shown, there };
    });
    if (at.end) break;
    if (!at.shown) problems.push("no sign of the focus: " + at.what);
    if (!at.there) problems.push("focused out of sight: " + at.what);
  }
  const left = await page.evaluate(() => {
    window.start.remove();
    const usable = "a[href], button:not(:disabled), input:not(:disabled):not([type=hidden]), select:not(:disabled), textarea:not(:disabled), summary, [tabindex='0']";
    return [...document.querySelectorAll(usable)].filter((e) => e.offsetParent !== null && e.tabIndex >= 0 && !window.seen.has(e)).map((e) => "not reached: " + e.outerHTML.slice(0, 100));
  });
  assert.deepEqual([...problems, ...left], [], `${view}: by keyboard`);
}

// WCAG 2.2, 1.4.3: 4.5 to 1, 3 to 1 for large text. What is disabled or hidden is left out.
export async function contrast(page, view) {
  const poor = await page.evaluate(() => {
    const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const rgba = (text) => {
      const m = /^rgba?\(([\d.]+), ([\d.]+), ([\d.]+)(?:, ([\d.]+))?\)$/.exec(text);
      if (m) return [Number(m[1]), Number(m[2]), Number(m[3]), m[4] === undefined ? 1 : Number(m[4])];
      pen.clearRect(0, 0, 1, 1);
      pen.fillStyle = text;
      pen.fillRect(0, 0, 1, 1);
      const d = pen.getImageData(0, 0, 1, 1).data;
      return [d[0], d[1], d[2], d[3] / 255];
    };
    const over = (a, b) => [0, 1, 2].map((i) => a[i] * a[3] + b[i] * (1 - a[3])).concat(1);
    const up = (e) => e.parentElement ?? e.getRootNode().host ?? null;
    const behind = (e) => {
      const layers = [];
      for (let n = e; n; n = up(n)) {
        const c = rgba(getComputedStyle(n).backgroundColor);
        if (c[3] > 0) layers.push(c);
        if (c[3] === 1) break;
      }
      return layers.reverse().reduce((under, c) => over(c, under), rgba(getComputedStyle(document.body).backgroundColor));
    };
    const light = (c) => { const [r, g, b] = c.map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4)); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
    const found = new Map();
    const look = (root) => {
      const texts = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
      for (let t = texts.nextNode(); t; t = texts.nextNode()) {
        const e = t.parentElement;
        if (!e || !t.textContent.trim() || e.closest("script, style, .hidden, [hidden], :disabled, [aria-disabled=true], .skip, option") || !e.checkVisibility?.({ opacityProperty: true, visibilityProperty: true })) continue;
        const s = getComputedStyle(e), back = behind(e);
        let ink = rgba(s.color);
        for (let n = e; n; n = up(n)) ink[3] *= Number(getComputedStyle(n).opacity);
        ink = over(ink, back);
        const [a, b] = [light(ink), light(back)].sort((x, y) => y - x), ratio = (a + 0.05) / (b + 0.05), size = parseFloat(s.fontSize);
        const wanted = size >= 24 || (size >= 18.66 && Number(s.fontWeight) >= 700) ? 3 : 4.5;
        if (ratio < wanted) found.set(`${e.tagName.toLowerCase()}.${e.className} ${ratio.toFixed(2)}`, t.textContent.trim().slice(0, 40));
      }
      for (const host of root.querySelectorAll("*")) if (host.shadowRoot) look(host.shadowRoot);
    };
    look(document.body);
    return [...found].map(([k, v]) => `${k}: ${v}`);
  });
  assert.deepEqual(poor, [], `${view}: text that is hard to read`);
}
