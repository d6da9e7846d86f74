// The server behind the page. A token, where it wants one, lives in this tab alone.
export class ApiError extends Error {
  constructor(readonly status: number, message: string, readonly code: string) {
    super(message);
  }
}

const kToken = "coach.token";
let askForToken: (() => Promise<string>) | null = null;
let asking: Promise<string> | null = null;
export function onTokenWanted(ask: () => Promise<string>): void {
  askForToken = ask;
}

async function send(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
  for (;;) {
    const headers: Record<string, string> = {};
    const token = sessionStorage.getItem(kToken);
    if (token) headers["Authorization"] = `Bearer ${token}`;
    if (method !== "GET") headers["Content-Type"] = "application/json";
    const init: RequestInit = { method, headers, cache: "no-store" };
    if (method !== "GET") init.body = JSON.stringify(body ?? {});
    if (signal) init.signal = signal;
    let response: Response;
    try {
      response = await fetch(path, init);
    } catch (e) {
      if (signal?.aborted) throw e;
      throw new ApiError(0, "The server does not answer. Is it still running?", "unreachable");
    }
    if (response.ok) return response;
    let message = `The server answered ${response.status}.`, code = "";
    try {
      const error = ((await response.json()) as { error?: { message?: string; code?: string } }).error;
      message = error?.message ?? message;
      code = error?.code ?? "";
    } catch {
      // Not ours to read: the status says enough.
    }
    if (response.status === 401 && askForToken) {
      asking ??= askForToken().finally(() => (asking = null));
      sessionStorage.setItem(kToken, await asking);
      continue;
    }
    throw new ApiError(response.status, message, code);
  }
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await (await send("GET", "/coach/api/" + path, undefined, signal)).json()) as T;
}
export async function post<T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> {
  return (await (await send("POST", "/coach/api/" + path, body, signal)).json()) as T;
}

export interface ServerEvent {
  name: string;
  data: string;
}

// Server-sent events through fetch, which can carry the token.
export async function* events(method: "GET" | "POST", path: string, body: unknown, signal: AbortSignal): AsyncGenerator<ServerEvent> {
  const response = await send(method, path, body, signal);
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    held += value;
    for (let end = held.indexOf("\n\n"); end >= 0; end = held.indexOf("\n\n")) {
      const event: ServerEvent = { name: "message", data: "" };
      for (const line of held.slice(0, end).split("\n")) {
        if (line.startsWith("event: ")) event.name = line.slice(7);
        if (line.startsWith("data: ")) event.data += line.slice(6);
      }
      held = held.slice(end + 2);
      if (event.data !== "") yield event;
    }
  }
}

export const message = (e: unknown): string => (e instanceof Error ? e.message : String(e));
