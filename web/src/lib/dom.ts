// Elements without a framework: h("div", { class: "x", onclick }, "text", child).
export type Child = Node | string | number | null | undefined | false | Child[];
type Props = Record<string, unknown>;

function append(parent: Node, child: Child): void {
  if (child === null || child === undefined || child === false) return;
  if (Array.isArray(child)) for (const c of child) append(parent, c);
  else parent.appendChild(child instanceof Node ? child : document.createTextNode(String(child)));
}

function assign(element: Element, props: Props): void {
  for (const [key, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on") && typeof value === "function") element.addEventListener(key.slice(2), value as EventListener);
    else if (key === "value" && "value" in element) (element as HTMLInputElement).value = String(value);
    else element.setAttribute(key, value === true ? "" : String(value));
  }
}

export function h<K extends keyof HTMLElementTagNameMap>(tag: K, props: Props | null = null, ...children: Child[]): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  if (props) assign(element, props);
  append(element, children);
  return element;
}

// In place of what was there. A view that refreshes itself leaves the keyboard where it was: on what has the same name now, else
// on what stands in the same place.
export function fill(element: Element, ...children: Child[]): void {
  const usable = (): HTMLElement[] => [...element.querySelectorAll<HTMLElement>("a[href], button:not(:disabled), input, select, textarea, summary, [tabindex='0']")];
  const name = (e: Element): string => `${e.tagName} ${e.getAttribute("aria-label") ?? e.getAttribute("href") ?? e.textContent}`;
  const held = element === document.activeElement ? -1 : usable().findIndex((e) => e === document.activeElement);
  const wanted = held < 0 ? "" : name(document.activeElement!);
  element.replaceChildren();
  append(element, children);
  if (held < 0) return;
  const now = usable();
  (now.find((e) => name(e) === wanted) ?? now[Math.min(held, now.length - 1)])?.focus({ preventScroll: true });
}

// Text in which `this` is code.
export const prose = (text: string): Child[] => text.split("`").map((part, i) => (i % 2 ? h("code", null, part) : part));

// Styles go through the object model: the page's policy allows no style attributes.
export function sized(element: HTMLElement, styles: Partial<Record<"width" | "left" | "height" | "background" | "color" | "flexGrow", string>>): HTMLElement {
  Object.assign(element.style, styles);
  return element;
}

// A view: what it shows, its title, and what must end when it is left.
export interface View {
  title: string;
  node: HTMLElement;
  leave?: () => void;
}
