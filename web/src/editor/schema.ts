// Where in a recipe the cursor stands, and what the recipe's JSON Schema says of that place.
export interface Schema {
  type?: string | string[]; description?: string; default?: unknown; enum?: unknown[]; const?: unknown; minimum?: number; maximum?: number; exclusiveMinimum?: number;
  properties?: Record<string, Schema>; required?: string[]; items?: Schema; oneOf?: Schema[]; anyOf?: Schema[];
}

export interface Place {
  path: string[];         // keys of the maps around
  key: string | null;     // set: the cursor stands in this key's value
  word: string;           // what is typed so far
  from: number;           // where it begins
}

// Block style, as recipes are written; in a flow map the enclosing key is all that is known.
export function placeOf(text: string, at: number): Place {
  const before = text.slice(0, at).split("\n");
  const line = before[before.length - 1] ?? "";
  const [path, indent] = [[] as string[], /^\s*/.exec(line)![0].length];
  let depth = indent;
  for (let i = before.length - 2; i >= 0 && depth > 0; --i) {
    const match = /^(\s*)([\w.-]+):\s*(#.*)?$/.exec(before[i]!);
    if (match && match[1]!.length < depth) {
      path.unshift(match[2]!);
      depth = match[1]!.length;
    }
  }
  const value = /^(\s*)([\w.-]+):\s+(.*)$/.exec(line);
  if (value) {
    const word = /[\w.+-]*$/.exec(value[3]!)![0];
    return { path, key: value[2]!, word, from: at - word.length };
  }
  const word = /[\w.-]*$/.exec(line)![0];
  return { path, key: null, word, from: at - word.length };
}

// A map of several shapes (train.method): the one whose `kind` the text names, else what all of them have.
function shape(schema: Schema, text: string, key: string): Schema {
  const options = schema.oneOf ?? schema.anyOf;
  if (!options || schema.properties) return schema;
  const kind = new RegExp(`^\\s*${key}:[^\\n]*\\n(?:\\s+.*\\n)*?\\s+kind:\\s*(\\w+)`, "m").exec(text)?.[1];
  const chosen = options.find((o) => o.properties?.["kind"]?.const === kind);
  if (chosen) return withKinds(chosen, options);
  return { properties: Object.assign({}, ...options.map((o) => o.properties ?? {})) as Record<string, Schema>, ...(schema.description ? { description: schema.description } : {}) };
}
function withKinds(chosen: Schema, all: Schema[]): Schema {
  const kinds = all.map((o) => o.properties?.["kind"]?.const).filter((k) => k !== undefined);
  return kinds.length ? { ...chosen, properties: { ...chosen.properties, kind: { enum: kinds, description: "Which method." } } } : chosen;
}

export function schemaAt(root: Schema, text: string, path: string[]): Schema | null {
  let s: Schema | undefined = root;
  for (const key of path) {
    s = s.properties?.[key];
    if (!s) return null;
    s = shape(s, text, key);
  }
  return s;
}

export function values(s: Schema): string[] {
  const flat = [s, ...(s.oneOf ?? []), ...(s.anyOf ?? [])];
  const out = flat.flatMap((x) => (x.enum ?? (x.const !== undefined ? [x.const] : [])).map(String));
  if (flat.some((x) => x.type === "boolean" || (Array.isArray(x.type) && x.type.includes("boolean")))) out.push("true", "false");
  if (s.default !== undefined && s.default !== null && typeof s.default !== "object" && !out.includes(String(s.default)) && s.default !== "") out.push(String(s.default));
  return out;
}

export function describe(s: Schema): string[] {
  const lines = s.description ? [s.description] : [];
  const type = Array.isArray(s.type) ? s.type.filter((t) => t !== "null").join(" or ") : s.type;
  const range = s.minimum !== undefined && s.maximum !== undefined ? `${s.minimum} to ${s.maximum}` : s.minimum !== undefined ? `at least ${s.minimum}` : s.maximum !== undefined ? `at most ${s.maximum}` : s.exclusiveMinimum !== undefined ? `more than ${s.exclusiveMinimum}` : "";
  const facts = [s.enum ? s.enum.join(" · ") : type === "object" ? "" : type, range, s.default !== undefined && s.default !== null && typeof s.default !== "object" && s.default !== "" ? `default ${String(s.default)}` : ""].filter(Boolean);
  if (facts.length) lines.push(facts.join(", "));
  return lines;
}
