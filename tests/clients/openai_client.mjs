// The official `openai` npm client against `mindxtrain serve`, as openai_client.py does it for PyPI's. Each check asserts; 0 when all hold,
// 77 where the package or the weights are not here.
//
//     npm install openai@6.30.1        (anywhere; later ones need Node 22)
//     node tests/clients/openai_client.mjs [--binary FILE] [--model FILE] [--packages FOLDER]
import assert from "node:assert/strict";
import { need, sleep, weather, withServer } from "./server.mjs";

const [{ default: OpenAI }] = await need("openai");
const tools = [{ type: "function", function: { name: "get_weather", description: "Weather of a city", parameters: weather } }];

async function checks(url) {
  const client = new OpenAI({ baseURL: url + "/v1", apiKey: "none", maxRetries: 0 });
  const models = await client.models.list();
  const model = models.data[0].id;
  assert.equal((await client.models.retrieve(model)).id, model);
  const ask = { model, messages: [{ role: "user", content: "What is the capital of France?" }], temperature: 0, max_tokens: 24 };

  const whole = await client.chat.completions.create(ask);
  assert.equal(whole.object, "chat.completion");
  assert.equal(whole.choices[0].message.role, "assistant");
  assert.ok(whole.choices[0].message.content);
  assert.ok(["stop", "length"].includes(whole.choices[0].finish_reason));
  assert.equal(whole.usage.total_tokens, whole.usage.prompt_tokens + whole.usage.completion_tokens);
  console.log("chat:", whole.choices[0].message.content);

  let text = "", last;
  for await (const chunk of await client.chat.completions.create({ ...ask, stream: true, stream_options: { include_usage: true } })) {
    assert.equal(chunk.object, "chat.completion.chunk");
    last = chunk;
    text += chunk.choices[0]?.delta.content ?? "";
  }
  assert.equal(text, whole.choices[0].message.content);
  assert.equal(last.usage.completion_tokens, whole.usage.completion_tokens);
  // The client's own way to put a stream together.
  const runner = client.chat.completions.stream({ ...ask });
  assert.equal((await runner.finalChatCompletion()).choices[0].message.content, text);

  const logprobs = (await client.chat.completions.create({ ...ask, logprobs: true, top_logprobs: 5 })).choices[0].logprobs.content;
  assert.ok(logprobs.every((t) => t.top_logprobs.length === 5 && t.logprob === t.top_logprobs[0].logprob && Array.isArray(t.bytes)), "greedy");
  assert.ok(Buffer.concat(logprobs.map((t) => Buffer.from(t.bytes))).toString().startsWith(text));

  const schema = { type: "object", properties: { city: { type: "string", maxLength: 20 }, population: { type: "integer", minimum: 0, maximum: 99999999 }, sights: { type: "array", items: { type: "string", maxLength: 20 }, maxItems: 3 } }, required: ["city", "population", "sights"], additionalProperties: false };
  const parsed = await client.chat.completions.parse({ ...ask, max_tokens: 300, response_format: { type: "json_schema", json_schema: { name: "city", schema, strict: true } } });
  const value = parsed.choices[0].message.parsed ?? JSON.parse(parsed.choices[0].message.content);
  assert.deepEqual(Object.keys(value).sort(), ["city", "population", "sights"]);
  assert.ok(Number.isInteger(value.population) && value.sights.length <= 3);
  console.log("structured:", JSON.stringify(value));

  const required = { ...ask, max_tokens: 200, tools, tool_choice: "required", parallel_tool_calls: false };
  const call = (await client.chat.completions.create(required)).choices[0];
  assert.equal(call.finish_reason, "tool_calls");
  assert.equal(call.message.tool_calls[0].function.name, "get_weather");
  const given = JSON.parse(call.message.tool_calls[0].function.arguments);
  assert.deepEqual(Object.keys(given).sort(), ["city", "unit"]);
  console.log("tool call:", JSON.stringify(given));
  let name = "", streamed = "", id = "";
  for await (const chunk of await client.chat.completions.create({ ...required, stream: true })) {
    for (const t of chunk.choices[0]?.delta.tool_calls ?? []) {
      assert.equal(t.index, 0);
      id += t.id ?? "";
      name += t.function?.name ?? "";
      streamed += t.function?.arguments ?? "";
    }
  }
  assert.equal(name, "get_weather");
  assert.ok(id);
  assert.deepEqual(JSON.parse(streamed), given);
  const again = await client.chat.completions.create({ ...ask, messages: [...ask.messages, call.message, { role: "tool", tool_call_id: call.message.tool_calls[0].id, content: "sunny" }], tools });
  assert.ok(again.choices[0].message);

  const several = await client.completions.create({ model, prompt: ["One, two,", "Red, green,"], max_tokens: 5, temperature: 0, logprobs: 2, echo: true });
  assert.equal(several.choices.length, 2);
  assert.ok(several.choices[0].text.startsWith("One, two,"));
  assert.equal(several.choices[0].logprobs.token_logprobs[0], null);

  const vectors = await client.embeddings.create({ model, input: ["a cat", "a dog", "tax law"] });  // base64 on the wire, as the client asks
  assert.equal(vectors.data.length, 3);
  assert.ok(vectors.data[0].embedding.length > 0 && vectors.data[0].embedding.every(Number.isFinite));
  const plain = await client.embeddings.create({ model, input: "a cat", encoding_format: "float" });
  assert.ok(Math.abs(plain.data[0].embedding[0] - vectors.data[0].embedding[0]) < 1e-6);

  for (const [bad, kind] of [[{ ...ask, model: "nobody" }, OpenAI.NotFoundError], [{ ...ask, n: 1e9 }, OpenAI.BadRequestError], [{ ...ask, messages: [] }, OpenAI.BadRequestError], [{ ...ask, temperature: -1 }, OpenAI.BadRequestError]]) {
    await assert.rejects(client.chat.completions.create(bad), (e) => e instanceof kind && e.type === "invalid_request_error" && typeof e.message === "string");
  }

  // Abort: by breaking off the loop, and by a signal.
  const running = async () => Number(/^mindxtrain_requests_running (\d+)/m.exec(await (await fetch(url + "/metrics")).text())[1]);
  const ended = async () => { for (let i = 0; i < 100; ++i) { if ((await running()) === 0) return true; await sleep(50); } return false; };
  const long = { ...ask, max_tokens: 1500, stream: true, ignore_eos: true };
  for await (const chunk of await client.chat.completions.create(long)) { assert.ok(chunk); break; }
  assert.ok(await ended(), "a client that has left is still served");
  const control = new AbortController();
  const stream = await client.chat.completions.create(long, { signal: control.signal });
  setTimeout(() => control.abort(), 200);
  let pieces = 0;
  for await (const chunk of stream) pieces += chunk.choices.length;
  assert.ok(pieces < 1500 && (await ended()), "an aborted request ends");
}

await withServer(checks);
