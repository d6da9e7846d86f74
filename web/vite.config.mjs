import { readdirSync, readFileSync, existsSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { defineConfig } from "vite";

// The licences of what ends up in the page, in its own words.
function licences() {
  return {
    name: "licences",
    generateBundle(_options, bundle) {
      const found = new Map();
      const note = (id) => {
        const match = /^(.*\/node_modules\/((?:@[^/]+\/)?[^/]+))\//.exec(id);
        if (match && !found.has(match[2])) found.set(match[2], match[1]);
      };
      for (const chunk of Object.values(bundle)) if (chunk.type === "chunk") for (const id of Object.keys(chunk.modules)) note(id);
      for (const font of ["@fontsource-variable/source-serif-4", "@fontsource-variable/ibm-plex-sans", "@fontsource/ibm-plex-mono", "uplot"]) found.set(font, join("node_modules", font));
      const text = [...found].sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, folder]) => {
        const version = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")).version;
        const file = ["LICENSE", "LICENSE.md", "LICENCE"].map((f) => join(folder, f)).find(existsSync);
        return `== ${name} ${version}\n\n${file ? readFileSync(file, "utf8").trim() : "(no licence file)"}\n`;
      });
      this.emitFile({ type: "asset", fileName: "licences.txt", source: text.join("\n\n") });
    },
  };
}

// FILE.gz beside every file, always the same bytes: they go into the binary as they are.
function compressed() {
  const walk = (folder) => readdirSync(folder).flatMap((name) => (statSync(join(folder, name)).isDirectory() ? walk(join(folder, name)) : [join(folder, name)]));
  return {
    name: "compressed",
    closeBundle() {
      for (const file of walk("dist")) if (!file.endsWith(".gz")) writeFileSync(file + ".gz", gzipSync(readFileSync(file), { level: 9 }));
    },
  };
}

export default defineConfig({
  base: "/coach/",
  plugins: [licences(), compressed()],
  build: { target: "es2022", assetsInlineLimit: 0, modulePreload: { polyfill: false }, chunkSizeWarningLimit: 800 },
  server: { proxy: { "/coach/api": "http://127.0.0.1:8000", "/v1": "http://127.0.0.1:8000" } },
});
