// The recipe editor: CodeMirror with the recipe's schema for completion and notes, and the server's own validator for what is wrong.
// It lives in a shadow root, where its styles are constructed sheets: the page's policy allows no inline ones.
import { autocompletion, closeBrackets, completionKeymap, type CompletionContext, type CompletionResult } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { yaml } from "@codemirror/lang-yaml";
import { HighlightStyle, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { lintGutter, lintKeymap, setDiagnostics, type Diagnostic } from "@codemirror/lint";
import { highlightSelectionMatches, searchKeymap } from "@codemirror/search";
import { EditorState } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, highlightActiveLineGutter, hoverTooltip, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { h } from "../lib/dom";
import type { Issue } from "../lib/types";
import { describe, placeOf, type Schema, schemaAt, values } from "./schema";

const theme = EditorView.theme({
  "&": { height: "100%", fontSize: "13px", color: "var(--ink)", backgroundColor: "var(--surface)" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "-2px" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.6" },
  ".cm-content": { caretColor: "var(--ink)", padding: "10px 0" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  ".cm-gutters": { backgroundColor: "transparent", color: "var(--muted)", border: "none" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "var(--hover)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--selection)" },
  ".cm-tooltip": { backgroundColor: "var(--surface)", color: "var(--ink)", border: "1px solid var(--line)", borderRadius: "6px", boxShadow: "var(--shadow)", maxWidth: "min(30rem, 90vw)" },
  ".cm-tooltip-autocomplete > ul": { fontFamily: "var(--mono)", maxHeight: "16em" },
  ".cm-tooltip-autocomplete > ul > li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--on-accent)" },
  ".cm-completionDetail": { fontFamily: "var(--sans)", fontStyle: "normal", color: "inherit", opacity: "0.65", marginLeft: "1em" },
  ".cm-completionInfo": { fontFamily: "var(--sans)", padding: "6px 10px" },
  ".cm-note": { fontFamily: "var(--sans)", fontSize: "13px", padding: "6px 10px", lineHeight: "1.45" },
  ".cm-note strong": { fontFamily: "var(--mono)", fontWeight: "500" },
  ".cm-note p": { margin: "2px 0 0" },
  ".cm-diagnostic": { fontFamily: "var(--sans)", fontSize: "13px", padding: "6px 10px" },
  ".cm-diagnostic-error": { borderLeft: "3px solid var(--bad)" },
  ".cm-lintRange-error": { backgroundImage: "none", textDecoration: "underline wavy var(--bad)", textUnderlineOffset: "3px" },
  ".cm-panels": { backgroundColor: "var(--surface)", color: "var(--ink)" },
  ".cm-textfield, .cm-button": { backgroundColor: "var(--paper)", backgroundImage: "none", color: "var(--ink)", border: "1px solid var(--line)", fontFamily: "var(--sans)" },
  "@media (max-width: 720px)": { "&": { fontSize: "16px" } },
});

const colours = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: "var(--code-key)" },
  { tag: [tags.string, tags.special(tags.string), tags.attributeValue], color: "var(--code-text)" },
  { tag: [tags.number, tags.bool, tags.null, tags.keyword], color: "var(--code-value)" },
  { tag: [tags.comment, tags.lineComment], color: "var(--muted)", fontStyle: "italic" },
  { tag: [tags.punctuation, tags.separator, tags.squareBracket, tags.brace], color: "var(--muted)" },
]);

function complete(schema: Schema) {
  return (context: CompletionContext): CompletionResult | null => {
    const text = context.state.doc.toString();
    const place = placeOf(text, context.pos);
    const around = schemaAt(schema, text, place.path);
    if (!around || (!context.explicit && place.word === "" && place.key === null)) return null;
    if (place.key !== null) {
      const of = schemaAt(schema, text, [...place.path, place.key]);
      if (!of) return null;
      return { from: place.from, options: values(of).map((v) => ({ label: v, type: "constant", ...(String(of.default) === v ? { detail: "default" } : {}) })), validFor: /^[\w.+-]*$/ };
    }
    const options = Object.entries(around.properties ?? {}).map(([key, s]) => {
      const map = s.type === "object" || (Array.isArray(s.type) && s.type.includes("object")) || s.properties !== undefined || (s.oneOf?.some((o) => o.properties) ?? false);
      const simple = s.default !== undefined && s.default !== null && typeof s.default !== "object" && s.default !== "";
      return { label: key, type: "property", apply: map ? `${key}:\n${" ".repeat(2 * (place.path.length + 1))}` : `${key}: `, info: () => h("div", null, describe(s).map((l) => h("div", null, l))), ...(simple ? { detail: String(s.default) } : {}), boost: around.required?.includes(key) ? 1 : 0 };
    });
    return { from: place.from, options, validFor: /^[\w.-]*$/ };
  };
}

const notes = (schema: Schema) =>
  hoverTooltip((view, at) => {
    const line = view.state.doc.lineAt(at);
    const match = /^(\s*)([\w.-]+):/.exec(line.text);
    if (!match || at > line.from + match[0].length || at < line.from + match[1]!.length) return null;
    const text = view.state.doc.toString();
    const path = [...placeOf(text, line.from + match[1]!.length).path, match[2]!];
    const s = schemaAt(schema, text, path);
    const lines = s ? describe(s) : [];
    if (!lines.length) return null;
    return { pos: line.from + match[1]!.length, end: line.from + match[0].length - 1, above: true, create: () => ({ dom: h("div", { class: "cm-note" }, h("strong", null, path.join(".")), lines.map((l) => h("p", null, l))) }) };
  });

export interface Editor {
  node: HTMLElement;
  text(): string;
  show(issues: Issue[]): void;
  goTo(line: number, column: number): void;
  close(): void;
}

export function makeEditor(text: string, schema: Schema, changed: (text: string) => void): Editor {
  const node = h("div", { class: "editor" });
  const root = node.attachShadow({ mode: "open" });
  const frame = h("div");
  frame.style.height = "100%";
  root.append(frame);
  const view = new EditorView({
    root,
    parent: frame,
    state: EditorState.create({
      doc: text,
      extensions: [
        lineNumbers(), highlightActiveLineGutter(), highlightActiveLine(), history(), drawSelection(), closeBrackets(), indentUnit.of("  "), highlightSelectionMatches(),
        yaml(), syntaxHighlighting(colours), lintGutter(), notes(schema), autocompletion({ override: [complete(schema)], icons: false }), theme,
        EditorView.lineWrapping, EditorView.contentAttributes.of({ "aria-label": "Recipe, YAML. Escape, then Tab, leaves the editor.", spellcheck: "false", autocapitalize: "off" }),
        keymap.of([...completionKeymap, ...lintKeymap, ...historyKeymap, ...searchKeymap, ...defaultKeymap, indentWithTab]),
        EditorView.updateListener.of((u) => u.docChanged && changed(u.state.doc.toString())),
      ],
    }),
  });
  const place = (line: number, column: number): number => {
    const l = view.state.doc.line(Math.min(Math.max(line, 1), view.state.doc.lines));
    return Math.min(l.from + Math.max(column - 1, 0), l.to);
  };
  return {
    node,
    text: () => view.state.doc.toString(),
    show(issues) {
      const diagnostics = issues.map((i): Diagnostic => {
        const from = place(i.line, i.column);
        const rest = /^[^\s:#,\]}]+/.exec(view.state.doc.sliceString(from, view.state.doc.lineAt(from).to));
        return { from, to: from + (rest?.[0].length ?? 0), severity: "error", message: (i.key ? `${i.key}: ` : "") + i.what + (i.remedy ? `; ${i.remedy}` : "") };
      });
      view.dispatch(setDiagnostics(view.state, diagnostics));
    },
    goTo(line, column) {
      const at = place(line, column);
      view.dispatch({ selection: { anchor: at }, effects: EditorView.scrollIntoView(at, { y: "center" }) });
      view.focus();
    },
    close: () => view.destroy(),
  };
}
